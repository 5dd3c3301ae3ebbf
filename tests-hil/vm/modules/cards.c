// SPDX-License-Identifier: GPL-2.0-only
/*
 * EPYC sockets (amd_hsmp_hwmon) and amdgpu cards below the hwmon core: sockets=N, gpus=N. A socket clips at its highest, a
 * card truncates to whole watts and refuses what is out of range, as their drivers do. Caps that were taken are noted in
 * silicon's log under NOTE_HWMON + device, cards after sockets.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt
#include <linux/device.h>
#include <linux/hwmon-sysfs.h>
#include <linux/hwmon.h>
#include <linux/module.h>
#include <linux/version.h>
#include "silicon.h"

#define MOST 4
static unsigned int sockets;
module_param(sockets, uint, 0444);
static unsigned int gpus;
module_param(gpus, uint, 0444);

struct card {
	struct device *parent, *hwmon;
	unsigned int number;
	u32 cap_uw, min_uw, max_uw;
};

static struct card cards[2 * MOST];

static void take(struct card *card, u32 cap_uw)
{
	silicon_note(0, NOTE_HWMON + card->number, card->cap_uw, cap_uw, 0);
	card->cap_uw = cap_uw;
}

static umode_t socket_mode(const void *data, enum hwmon_sensor_types type, u32 attribute, int channel)
{
	return attribute == hwmon_power_cap ? 0644 : 0444;
}

static int socket_read(struct device *dev, enum hwmon_sensor_types type, u32 attribute, int channel, long *value)
{
	struct card *card = dev_get_drvdata(dev);

	switch (attribute) {
	case hwmon_power_input: *value = min(card->cap_uw, 180000000u); return 0;
	case hwmon_power_cap: *value = card->cap_uw; return 0;
	case hwmon_power_cap_max: *value = card->max_uw; return 0;
	}
	return -EOPNOTSUPP;
}

static int socket_write(struct device *dev, enum hwmon_sensor_types type, u32 attribute, int channel, long value)
{
	struct card *card = dev_get_drvdata(dev);

	if (attribute != hwmon_power_cap)
		return -EOPNOTSUPP;
	/* The mailbox takes milliwatts; firmware clips. */
	take(card, min_t(u32, (u32)value / 1000 * 1000, card->max_uw));
	return 0;
}

static const struct hwmon_ops socket_ops = { .is_visible = socket_mode, .read = socket_read, .write = socket_write };
static const struct hwmon_channel_info socket_power = {
	.type = hwmon_power,
	.config = (const u32[]){ HWMON_P_INPUT | HWMON_P_CAP | HWMON_P_CAP_MAX, 0 },
};
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
static const struct hwmon_channel_info * const socket_info[] = { &socket_power, NULL };
#else
static const struct hwmon_channel_info *socket_info[] = { &socket_power, NULL };
#endif
static const struct hwmon_chip_info socket_chip = { .ops = &socket_ops, .info = socket_info };

static ssize_t gpu_show(struct device *dev, struct device_attribute *attribute, char *out)
{
	struct card *card = dev_get_drvdata(dev);

	switch (to_sensor_dev_attr(attribute)->index) {
	case 0: return sysfs_emit(out, "%u\n", card->cap_uw);
	case 1: return sysfs_emit(out, "%u\n", card->min_uw);
	case 2: return sysfs_emit(out, "%u\n", card->max_uw);
	case 3: return sysfs_emit(out, "%u\n", card->max_uw);
	}
	return sysfs_emit(out, "%u\n", min(card->cap_uw, 300000000u));
}

static ssize_t gpu_store(struct device *dev, struct device_attribute *attribute, const char *text, size_t count)
{
	struct card *card = dev_get_drvdata(dev);
	u32 value;
	int error = kstrtou32(text, 10, &value);

	if (error)
		return error;
	value = value / 1000000 * 1000000;
	if (value < card->min_uw || value > card->max_uw)
		return -EINVAL;
	take(card, value);
	return count;
}

static SENSOR_DEVICE_ATTR(power1_cap, 0644, gpu_show, gpu_store, 0);
static SENSOR_DEVICE_ATTR(power1_cap_min, 0444, gpu_show, NULL, 1);
static SENSOR_DEVICE_ATTR(power1_cap_max, 0444, gpu_show, NULL, 2);
static SENSOR_DEVICE_ATTR(power1_cap_default, 0444, gpu_show, NULL, 3);
static SENSOR_DEVICE_ATTR(power1_average, 0444, gpu_show, NULL, 4);
static struct attribute *gpu_attrs[] = {
	&sensor_dev_attr_power1_cap.dev_attr.attr, &sensor_dev_attr_power1_cap_min.dev_attr.attr,
	&sensor_dev_attr_power1_cap_max.dev_attr.attr, &sensor_dev_attr_power1_cap_default.dev_attr.attr,
	&sensor_dev_attr_power1_average.dev_attr.attr, NULL,
};
ATTRIBUTE_GROUPS(gpu);

static int __init cards_init(void)
{
	unsigned int i;

	sockets = min(sockets, (unsigned int)MOST);
	gpus = min(gpus, (unsigned int)MOST);
	for (i = 0; i < sockets + gpus; i++) {
		struct card *card = &cards[i];
		bool is_gpu = i >= sockets;
		char name[32];

		card->number = i;
		card->min_uw = is_gpu ? 150000000 : 0;
		card->cap_uw = card->max_uw = is_gpu ? 300000000 : 280000000;
		if (is_gpu)
			snprintf(name, sizeof(name), "0000:%02x:00.0", 0xc0 + i - sockets);
		else
			snprintf(name, sizeof(name), "amd_hsmp.%u", i);
		card->parent = root_device_register(name);
		if (IS_ERR(card->parent))
			return PTR_ERR(card->parent);
		card->hwmon = is_gpu ? hwmon_device_register_with_groups(card->parent, "amdgpu", card, gpu_groups)
				     : hwmon_device_register_with_info(card->parent, "amd_hsmp_hwmon", card,
								       &socket_chip, NULL);
		if (IS_ERR(card->hwmon))
			return PTR_ERR(card->hwmon);
	}
	return 0;
}

static void __exit cards_exit(void)
{
	unsigned int i;

	for (i = 0; i < sockets + gpus; i++) {
		hwmon_device_unregister(cards[i].hwmon);
		root_device_unregister(cards[i].parent);
	}
}

module_init(cards_init);
module_exit(cards_exit);
MODULE_DESCRIPTION("Sockets and cards below hwmon");
MODULE_LICENSE("GPL");
