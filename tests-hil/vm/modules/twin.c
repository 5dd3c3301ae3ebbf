// SPDX-License-Identifier: GPL-2.0-only
/* intel-rapl-mmio: the twin of package 0's limits that client machines have, by the kernel's own RAPL code. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt
#include <linux/cpu.h>
#include <linux/intel_rapl.h>
#include <linux/module.h>
#include <linux/powercap.h>
#include <linux/version.h>
#include "silicon.h"

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#define NUMBER(reg) ((u32)(reg).val)
#define SET(reg, number) ((reg).val = (number))
#else
#define NUMBER(reg) ((u32)(reg))
#define SET(reg, number) ((reg) = (number))
#endif

static struct rapl_if_priv twin;

static int read_raw(int cpu, struct reg_action *action)
{
	int error = silicon_read(0, NUMBER(action->reg), &action->value);

	action->value &= action->mask;
	return error;
}

static int write_raw(int cpu, struct reg_action *action)
{
	u64 value;
	int error = silicon_read(0, NUMBER(action->reg), &value);

	return error ? error : silicon_write(0, NUMBER(action->reg), (value & ~action->mask) | action->value);
}

static struct rapl_package *package;

static int __init twin_init(void)
{
	SET(twin.reg_unit, TWIN_UNIT);
	SET(twin.regs[RAPL_DOMAIN_PACKAGE][RAPL_DOMAIN_REG_LIMIT], TWIN_LIMIT);
	SET(twin.regs[RAPL_DOMAIN_PACKAGE][RAPL_DOMAIN_REG_STATUS], TWIN_ENERGY);
	SET(twin.regs[RAPL_DOMAIN_PACKAGE][RAPL_DOMAIN_REG_INFO], TWIN_INFO);
	twin.read_raw = read_raw;
	twin.write_raw = write_raw;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	twin.type = RAPL_IF_MMIO;
	twin.limits[RAPL_DOMAIN_PACKAGE] = BIT(POWER_LIMIT2);
#else
	twin.limits[RAPL_DOMAIN_PACKAGE] = 2;
#endif
	twin.control_type = powercap_register_control_type(NULL, "intel-rapl-mmio", NULL);
	if (IS_ERR(twin.control_type))
		return PTR_ERR(twin.control_type);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	package = rapl_add_package(0, &twin, false);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	package = rapl_add_package(0, &twin, true);
#else
	package = rapl_add_package(0, &twin);
#endif
	if (IS_ERR(package)) {
		powercap_unregister_control_type(twin.control_type);
		return PTR_ERR(package);
	}
	/* rapl_find_package_domain must know it, and it is on processor 0 for good. */
	cpumask_set_cpu(0, &package->cpumask);
	return 0;
}

static void __exit twin_exit(void)
{
	rapl_remove_package(package);
	powercap_unregister_control_type(twin.control_type);
}

module_init(twin_init);
module_exit(twin_exit);
MODULE_DESCRIPTION("The twin of a package's limits");
MODULE_LICENSE("GPL");
