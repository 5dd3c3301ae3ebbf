// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registers of RAPL with a plant behind, for the kernel's own drivers to stand on.
 *
 * A die has the registers of the table below. Each write is logged with its writer before anybody can see its effect.
 * With keep=ADDRESS the registers lie in memory that the kernel was told to leave alone (memmap=), so that they outlive
 * kexec as real ones do. The plant runs every 10 ms: what the die wants, scaled by its processors' clocks, bounded by the
 * limits that are enabled.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/timer.h>
#include <linux/topology.h>
#include <linux/uaccess.h>
#include <asm/processor.h>
#include "silicon.h"

#define DIES 4
#define TICK_MS 10
#define FLOOR_MW 30000u
#define MAGIC 0x4c5549434f4e3031ULL

enum { UNIT, LIMIT, ENERGY, PERF, INFO, DRAM_LIMIT, DRAM_ENERGY, DRAM_PERF, DRAM_INFO, PSYS_ENERGY, PSYS_LIMIT,
       AMD_UNIT, AMD_CORE_ENERGY, AMD_ENERGY, TWIN, REGISTERS };

static const struct { u32 number; u64 first; } table[REGISTERS] = {
	[UNIT] = { 0x606, 0xa0e03 },
	/* 205 W over 28 s and 300 W over 2.4 ms, both enabled and clamping. */
	[LIMIT] = { 0x610, 0x0043896000dd8668ULL },
	[ENERGY] = { 0x611, 0 },
	[PERF] = { 0x613, 0 },
	/* 205 W thermal, 50 W at least, 410 W at most. */
	[INFO] = { 0x614, 0x00000cd001900668ULL },
	[DRAM_LIMIT] = { 0x618, 0 },
	[DRAM_ENERGY] = { 0x619, 0 },
	[DRAM_PERF] = { 0x61b, 0 },
	[DRAM_INFO] = { 0x61c, 0x0000000000780078ULL },
	[PSYS_ENERGY] = { 0x64d, 0 },
	[PSYS_LIMIT] = { 0x65c, 0 },
	[AMD_UNIT] = { 0xc0010299, 0xa1003 },
	[AMD_CORE_ENERGY] = { 0xc001029a, 0 },
	[AMD_ENERGY] = { 0xc001029b, 0 },
	[TWIN] = { TWIN_LIMIT, 0x0043896000dd8668ULL },
};

struct cell {
	u64 value;
	bool absent, unreadable, unwritable;
};

struct die {
	struct cell cell[REGISTERS];
	u64 energy_nj, dram_nj;
	u32 demand_mw, power_mw, average_mw;
};

struct silicon {
	u64 magic;
	bool lock_faults;
	struct die die[DIES];
};

struct line {
	u64 at_us, old, new;
	u32 cpu, reg;
	int error, pid;
	char who[TASK_COMM_LEN];
};

#define LINES 16384
static struct silicon *chip;
static struct line *lines;
static unsigned int line_count;
static unsigned int clocks[NR_CPUS];
static unsigned int slow_us;
static int kill_in;
static bool amd;
static DEFINE_SPINLOCK(lock);
/* One access of a register at a time, as on the processor itself. */
static DEFINE_MUTEX(bus);
static unsigned int here;
static struct timer_list timer;
static unsigned long keep;
module_param(keep, ulong, 0444);

static int of_number(u32 number)
{
	int i;

	switch (number) {
	case TWIN_UNIT: return UNIT;
	case TWIN_ENERGY: return ENERGY;
	case TWIN_INFO: return INFO;
	}
	for (i = 0; i < REGISTERS; i++)
		if (table[i].number == number)
			return i;
	return -1;
}

static struct die *die_of(unsigned int cpu)
{
	int id = amd ? topology_physical_package_id(cpu) : topology_logical_die_id(cpu);

	return id >= 0 && id < DIES ? &chip->die[id] : NULL;
}

static u64 counted(u64 nj, unsigned int unit)
{
	return (u32)mul_u64_u64_div_u64(nj, 1ULL << unit, 1000000000ULL);
}

static u64 value_of(struct die *die, int i)
{
	switch (i) {
	case ENERGY: return counted(die->energy_nj, (die->cell[UNIT].value >> 8) & 0x1f);
	case DRAM_ENERGY: return (u32)div_u64(die->dram_nj, 15300);
	case PSYS_ENERGY: return counted(die->energy_nj + die->energy_nj / 4, (die->cell[UNIT].value >> 8) & 0x1f);
	case AMD_ENERGY: return counted(die->energy_nj, (die->cell[AMD_UNIT].value >> 8) & 0x1f);
	case AMD_CORE_ENERGY: return counted(die->energy_nj / 8, (die->cell[AMD_UNIT].value >> 8) & 0x1f);
	}
	return die->cell[i].value;
}

static void write_line(unsigned int cpu, u32 reg, u64 old, u64 new, int error)
{
	struct line *line = &lines[line_count % LINES];

	line->at_us = ktime_to_us(ktime_get_boottime());
	line->cpu = cpu;
	line->reg = reg;
	line->old = old;
	line->new = new;
	line->error = error;
	line->pid = current->tgid;
	get_task_comm(line->who, current->group_leader);
	line_count++;
}

static int read_register(unsigned int cpu, u32 reg, u64 *value)
{
	int i = of_number(reg), error = -EIO;
	struct die *die;
	unsigned long flags;

	if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -ENXIO;
	spin_lock_irqsave(&lock, flags);
	die = die_of(cpu);
	if (die && i >= 0 && !die->cell[i].absent && !die->cell[i].unreadable) {
		*value = value_of(die, i);
		error = 0;
	}
	spin_unlock_irqrestore(&lock, flags);
	return error;
}

static bool locked(int i, u64 value)
{
	switch (i) {
	case LIMIT: case PSYS_LIMIT: case TWIN: return value >> 63;
	case DRAM_LIMIT: return value >> 31 & 1;
	}
	return false;
}

static int write_register(unsigned int cpu, u32 reg, u64 value)
{
	int i = of_number(reg), error = -EIO;
	struct die *die;
	unsigned long flags;
	bool kill = false;

	if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -ENXIO;
	if (slow_us)
		usleep_range(slow_us, slow_us + 10);
	spin_lock_irqsave(&lock, flags);
	die = die_of(cpu);
	if (die && i >= 0 && !die->cell[i].absent && !die->cell[i].unwritable) {
		u64 old = value_of(die, i);

		error = 0;
		if (locked(i, old))
			error = chip->lock_faults ? -EIO : 0;
		else
			die->cell[i].value = value;
		write_line(cpu, table[i].number, old, value, error);
		kill = current->mm && kill_in > 0 && --kill_in == 0;
	} else if (die) {
		write_line(cpu, reg, 0, value, error);
	}
	spin_unlock_irqrestore(&lock, flags);
	if (kill)
		send_sig(SIGKILL, current, 1);
	return error;
}

int silicon_read(unsigned int cpu, u32 reg, u64 *value)
{
	return read_register(cpu, reg, value);
}
EXPORT_SYMBOL_GPL(silicon_read);

int silicon_read_halves(unsigned int cpu, u32 reg, u32 *low, u32 *high)
{
	u64 value = 0;
	int error = read_register(cpu, reg, &value);

	*low = (u32)value;
	*high = value >> 32;
	return error;
}
EXPORT_SYMBOL_GPL(silicon_read_halves);

int silicon_write(unsigned int cpu, u32 reg, u64 value)
{
	int error;

	mutex_lock(&bus);
	error = write_register(cpu, reg, value);
	mutex_unlock(&bus);
	return error;
}
EXPORT_SYMBOL_GPL(silicon_write);

int silicon_call(int cpu, smp_call_func_t call, void *with)
{
	if (cpu < 0 || cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -ENXIO;
	mutex_lock(&bus);
	here = cpu;
	call(with);
	mutex_unlock(&bus);
	return 0;
}
EXPORT_SYMBOL_GPL(silicon_call);

int silicon_here_read(u32 reg, u64 *value)
{
	return read_register(here, reg, value);
}
EXPORT_SYMBOL_GPL(silicon_here_read);

int silicon_here_write(u32 reg, u64 value)
{
	return write_register(here, reg, value);
}
EXPORT_SYMBOL_GPL(silicon_here_write);

void silicon_clock(unsigned int cpu, unsigned int permille)
{
	if (cpu < NR_CPUS)
		WRITE_ONCE(clocks[cpu], permille);
}
EXPORT_SYMBOL_GPL(silicon_clock);

void silicon_note(unsigned int cpu, u32 what, u64 old, u64 new, int error)
{
	unsigned long flags;
	bool kill = false;

	spin_lock_irqsave(&lock, flags);
	write_line(cpu, what, old, new, error);
	kill = current->mm && kill_in > 0 && --kill_in == 0;
	spin_unlock_irqrestore(&lock, flags);
	if (kill)
		send_sig(SIGKILL, current, 1);
}
EXPORT_SYMBOL_GPL(silicon_note);

/* The window of a half of the limit register: 2^y (1 + f/4) / 1024 s. */
static u32 window_ms(u64 half)
{
	u64 y = half >> 17 & 0x1f, f = half >> 22 & 3;

	return max_t(u64, TICK_MS, min_t(u64, ((4 + f) << y) * 1000 / 4096, 1000000));
}

/* What one limit register allows now. */
static u32 allowed(struct die *die, u64 limit)
{
	u32 pl1 = (limit & 0x7fff) * 125, pl2 = (limit >> 32 & 0x7fff) * 125, most = U32_MAX;

	if (limit >> 47 & 1)
		most = pl2;
	if (limit >> 15 & 1) {
		if (die->average_mw >= pl1)
			most = min(most, pl1);
	}
	return most;
}

static void step_die(struct die *die, u32 passed_us)
{
	u32 wanted = max(die->demand_mw, FLOOR_MW) - FLOOR_MW, share = 0, cpus = 0, power, window;
	u64 limit = die->cell[LIMIT].value, twin = die->cell[TWIN].value;
	unsigned int cpu;

	for_each_online_cpu(cpu)
		if (die_of(cpu) == die) {
			u32 clock = READ_ONCE(clocks[cpu]);

			share += clock * clock / 1000;
			cpus++;
		}
	power = FLOOR_MW + (cpus ? (u32)((u64)wanted * share / cpus / 1000) : 0);
	power = min(power, allowed(die, limit));
	if (!die->cell[TWIN].absent)
		power = min(power, allowed(die, twin));
	power = max(power, cpus ? FLOOR_MW : 0);
	window = limit >> 15 & 1 ? window_ms(limit) : 1000;
	die->average_mw += (s32)((s64)((s32)(power - die->average_mw)) * min(passed_us / 1000, window) / window);
	/* Integer steps stop short of the goal. */
	if (die->average_mw < power)
		die->average_mw++;
	die->power_mw = power;
	die->energy_nj += (u64)power * passed_us;
	die->dram_nj += 8000ULL * passed_us;
}

static void tick(struct timer_list *unused)
{
	static u64 last_us;
	u64 now_us = ktime_to_us(ktime_get());
	/* A timer of a busy guest is late; energy is not. */
	u32 passed_us = last_us ? min_t(u64, now_us - last_us, 10000000) : TICK_MS * 1000;
	unsigned long flags;
	unsigned int id;

	last_us = now_us;
	spin_lock_irqsave(&lock, flags);
	for (id = 0; id < DIES; id++)
		step_die(&chip->die[id], passed_us);
	spin_unlock_irqrestore(&lock, flags);
	mod_timer(&timer, jiffies + msecs_to_jiffies(TICK_MS));
}

/*
 * set DIE REG VALUE | demand DIE MW | energy DIE COUNT | absent DIE REG 0|1 | unreadable DIE REG 0|1 |
 * unwritable DIE REG 0|1 | faults 0|1 (whether a locked register faults) | slow US | kill N (after the Nth write of a
 * process) | clear (the log)
 */
static int order(char *text)
{
	char verb[16];
	unsigned long long id = 0, reg = 0, value = 0;
	int words = sscanf(text, "%15s %lli %lli %lli", verb, &id, &reg, &value), i = -1, error = 0;
	unsigned long flags;

	if (words < 1)
		return -EINVAL;
	if (words == 4) {
		i = of_number(reg);
		if (i < 0 || id >= DIES)
			return -EINVAL;
	}
	spin_lock_irqsave(&lock, flags);
	if (!strcmp(verb, "set") && words == 4)
		chip->die[id].cell[i].value = value;
	else if (!strcmp(verb, "absent") && words == 4)
		chip->die[id].cell[i].absent = value;
	else if (!strcmp(verb, "unreadable") && words == 4)
		chip->die[id].cell[i].unreadable = value;
	else if (!strcmp(verb, "unwritable") && words == 4)
		chip->die[id].cell[i].unwritable = value;
	else if (!strcmp(verb, "demand") && words == 3 && id < DIES)
		chip->die[id].demand_mw = reg;
	else if (!strcmp(verb, "energy") && words == 3 && id < DIES)
		chip->die[id].energy_nj = mul_u64_u64_div_u64(reg + 1, 1000000000ULL,
				1ULL << ((chip->die[id].cell[amd ? AMD_UNIT : UNIT].value >> 8) & 0x1f));
	else if (!strcmp(verb, "faults") && words == 2)
		chip->lock_faults = id;
	else if (!strcmp(verb, "slow") && words == 2)
		slow_us = id;
	else if (!strcmp(verb, "kill") && words == 2)
		kill_in = id;
	else if (!strcmp(verb, "clear"))
		line_count = 0;
	else
		error = -EINVAL;
	spin_unlock_irqrestore(&lock, flags);
	return error;
}

static ssize_t control_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	char text[96];
	int error;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	text[count] = 0;
	error = order(text);
	return error ? error : count;
}

static const struct proc_ops control_ops = { .proc_write = control_write };

static int show_registers(struct seq_file *out, void *unused)
{
	unsigned int id, i;

	for (id = 0; id < DIES; id++)
		for (i = 0; i < REGISTERS; i++)
			if (!chip->die[id].cell[i].absent)
				seq_printf(out, "%u 0x%x 0x%016llx\n", id, table[i].number,
					   value_of(&chip->die[id], i));
	return 0;
}

static int show_plant(struct seq_file *out, void *unused)
{
	unsigned int id;

	for (id = 0; id < DIES; id++)
		seq_printf(out, "%u %u %u %llu\n", id, chip->die[id].power_mw, chip->die[id].average_mw,
			   chip->die[id].energy_nj / 1000);
	return 0;
}

static int show_log(struct seq_file *out, void *unused)
{
	unsigned int i = line_count > LINES ? line_count - LINES : 0;

	for (; i < line_count; i++) {
		struct line *line = &lines[i % LINES];

		seq_printf(out, "%llu %d %s %u 0x%x 0x%016llx 0x%016llx %d\n", line->at_us, line->pid, line->who,
			   line->cpu, line->reg, line->old, line->new, line->error);
	}
	return 0;
}

static void first_values(void)
{
	unsigned int id, i;

	memset(chip, 0, sizeof(*chip));
	chip->magic = MAGIC;
	for (id = 0; id < DIES; id++) {
		struct die *die = &chip->die[id];

		for (i = 0; i < REGISTERS; i++) {
			die->cell[i].value = table[i].first;
			die->cell[i].absent = (i >= AMD_UNIT && i <= AMD_ENERGY) != amd;
		}
		die->cell[TWIN].absent = true;
		for (i = PSYS_ENERGY; i <= PSYS_LIMIT; i++)
			die->cell[i].absent = true;
		die->demand_mw = 150000;
		/* A counter at zero is no counter to the driver. */
		die->energy_nj = 1000000000ULL * (id + 1);
		die->dram_nj = 1000000000ULL * (id + 1);
	}
}

static int __init silicon_init(void)
{
	struct proc_dir_entry *folder;
	unsigned int cpu;

	amd = boot_cpu_data.x86_vendor == X86_VENDOR_AMD;
	for (cpu = 0; cpu < NR_CPUS; cpu++)
		clocks[cpu] = 1000;
	lines = kvcalloc(LINES, sizeof(*lines), GFP_KERNEL);
	chip = keep ? memremap(keep, sizeof(*chip), MEMREMAP_WB) : kzalloc(sizeof(*chip), GFP_KERNEL);
	if (!lines || !chip)
		return -ENOMEM;
	if (chip->magic != MAGIC)
		first_values();
	timer_setup(&timer, tick, 0);
	mod_timer(&timer, jiffies + 1);
	folder = proc_mkdir("silicon", NULL);
	proc_create("control", 0600, folder, &control_ops);
	proc_create_single("registers", 0444, folder, show_registers);
	proc_create_single("plant", 0444, folder, show_plant);
	proc_create_single("log", 0444, folder, show_log);
	return 0;
}
module_init(silicon_init);

/* It stays until the machine ends, as silicon does. */
MODULE_DESCRIPTION("Simulated RAPL registers with a plant behind");
MODULE_LICENSE("GPL");
