/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SILICON_H
#define SILICON_H
#include <linux/types.h>
#include <linux/smp.h>

/* Registers of the die of a processor: -ENXIO while it is offline, -EIO where there is no such register. */
int silicon_read(unsigned int cpu, u32 reg, u64 *value);
int silicon_read_halves(unsigned int cpu, u32 reg, u32 *low, u32 *high);
int silicon_write(unsigned int cpu, u32 reg, u64 value);

/* A call on another processor, in the caller's own context, so that the log knows who wrote. */
int silicon_call(int cpu, smp_call_func_t call, void *with);
int silicon_here_read(u32 reg, u64 *value);
int silicon_here_write(u32 reg, u64 value);

/* The clock of a processor as a share of its highest, in thousandths; what the plant draws depends on it. */
void silicon_clock(unsigned int cpu, unsigned int permille);
/* A line of the log that is no register write. */
void silicon_note(unsigned int cpu, u32 what, u64 old, u64 new, int error);

/* Memory-mapped twins of the limit and its companions. */
#define TWIN_UNIT 0x5938
#define TWIN_LIMIT 0x59a0
#define TWIN_ENERGY 0x593c
#define TWIN_INFO 0x5930
/* Notes: the limit of a policy that came into force. */
#define NOTE_FREQUENCY 0xf0000000
/* A power limit below hwmon. */
#define NOTE_HWMON 0xf1000000
#endif
