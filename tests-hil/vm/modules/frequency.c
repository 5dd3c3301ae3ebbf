// SPDX-License-Identifier: GPL-2.0-only
/*
 * A frequency driver below the cpufreq core, of one of three kinds: kind=table (acpi-cpufreq: steps of 400 MHz, a policy
 * for `shared` processors), kind=any (intel_cpufreq: any value, a governor picks), kind=self (intel_pstate: any value, the
 * driver picks). The limit that came into force is noted in silicon's log, and clocks its plant.
 *
 * /proc/frequency: `request POLICY KHZ` is a second request beside the user's, as the thermal framework has one; 0 ends it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt
#include <linux/cpufreq.h>
#include <linux/module.h>
#include <linux/pm_qos.h>
#include <linux/proc_fs.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include "silicon.h"

#define LOWEST 1200000u
#define HIGHEST 3200000u
#define POLICIES 16

static char *kind = "any";
module_param(kind, charp, 0444);
static unsigned int shared = 1;
module_param(shared, uint, 0444);
static unsigned int highest = HIGHEST;
module_param(highest, uint, 0444);

static struct cpufreq_frequency_table steps[] = {
	{ .frequency = 3200000 }, { .frequency = 2800000 }, { .frequency = 2400000 }, { .frequency = 2000000 },
	{ .frequency = 1600000 }, { .frequency = 1200000 }, { .frequency = CPUFREQ_TABLE_END },
};
static unsigned int limit_of[POLICIES];
static struct freq_qos_request requests[POLICIES];

static void in_force(struct cpufreq_policy *policy, unsigned int khz)
{
	unsigned int cpu, *limit = &limit_of[policy->cpu % POLICIES];

	for_each_cpu(cpu, policy->cpus)
		silicon_clock(cpu, khz / (highest / 1000));
	if (*limit != policy->max)
		silicon_note(policy->cpu, NOTE_FREQUENCY, *limit, policy->max, 0);
	*limit = policy->max;
	policy->cur = khz;
}

static int init(struct cpufreq_policy *policy)
{
	unsigned int first = policy->cpu / shared * shared, cpu;

	for (cpu = first; cpu < first + shared; cpu++)
		if (cpu < nr_cpu_ids && cpu_possible(cpu))
			cpumask_set_cpu(cpu, policy->cpus);
	policy->cpuinfo.min_freq = policy->min = LOWEST;
	policy->cpuinfo.max_freq = policy->max = highest;
	policy->cpuinfo.transition_latency = 10000;
	policy->cur = highest;
	policy->policy = CPUFREQ_POLICY_PERFORMANCE;
	if (!strcmp(kind, "table"))
		policy->freq_table = steps;
	limit_of[policy->cpu % POLICIES] = 0;
	return 0;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
static int leave(struct cpufreq_policy *policy)
#else
static void leave(struct cpufreq_policy *policy)
#endif
{
	unsigned int cpu;

	for_each_cpu(cpu, policy->related_cpus)
		silicon_clock(cpu, 1000);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
	return 0;
#endif
}

static int verify(struct cpufreq_policy_data *policy)
{
	cpufreq_verify_within_cpu_limits(policy);
	return 0;
}

static int set_policy(struct cpufreq_policy *policy)
{
	in_force(policy, policy->max);
	return 0;
}

static int target(struct cpufreq_policy *policy, unsigned int khz, unsigned int relation)
{
	in_force(policy, clamp(khz, policy->min, policy->max));
	return 0;
}

static int target_index(struct cpufreq_policy *policy, unsigned int index)
{
	in_force(policy, steps[index].frequency);
	return 0;
}

static struct cpufreq_driver driver = { .init = init, .exit = leave, .verify = verify };

static ssize_t order(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	char text[64];
	unsigned int cpu, khz;
	struct cpufreq_policy *policy;
	struct freq_qos_request *request;
	int error = 0;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	text[count] = 0;
	if (sscanf(text, "request %u %u", &cpu, &khz) != 2 || cpu >= POLICIES)
		return -EINVAL;
	policy = cpufreq_cpu_get(cpu);
	if (!policy)
		return -ENODEV;
	request = &requests[policy->cpu];
	if (freq_qos_request_active(request))
		freq_qos_remove_request(request);
	if (khz)
		error = freq_qos_add_request(&policy->constraints, request, FREQ_QOS_MAX, khz);
	cpufreq_cpu_put(policy);
	return error < 0 ? error : count;
}

static const struct proc_ops order_ops = { .proc_write = order };

static int __init frequency_init(void)
{
	const char *name;

	if (!strcmp(kind, "table")) {
		name = "acpi-cpufreq";
		driver.target_index = target_index;
		driver.verify = cpufreq_generic_frequency_table_verify;
		driver.attr = cpufreq_generic_attr;
	} else if (!strcmp(kind, "self")) {
		name = "intel_pstate";
		driver.setpolicy = set_policy;
	} else {
		name = "intel_cpufreq";
		driver.target = target;
	}
	strscpy(driver.name, name, sizeof(driver.name));
	if (!proc_create("frequency", 0600, NULL, &order_ops))
		return -ENOMEM;
	return cpufreq_register_driver(&driver);
}

static void __exit frequency_exit(void)
{
	unsigned int i;

	for (i = 0; i < POLICIES; i++)
		if (freq_qos_request_active(&requests[i]))
			freq_qos_remove_request(&requests[i]);
	remove_proc_entry("frequency", NULL);
	cpufreq_unregister_driver(&driver);
}

module_init(frequency_init);
module_exit(frequency_exit);
MODULE_DESCRIPTION("A frequency driver of one of three kinds");
MODULE_LICENSE("GPL");
