/* SPDX-License-Identifier: GPL-2.0-only */
/* Included before the kernel's own intel_rapl_msr.c and msr.c: what they would do to a register is done to silicon's. */
#ifndef SHIM_H
#define SHIM_H
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt
#include <linux/smp.h>
#include <asm/msr.h>
#include "silicon.h"

#undef rdmsrl_safe
#undef wrmsrl_safe
#undef rdmsrl_safe_on_cpu
#undef smp_call_function_single
#define rdmsrl_safe(msr, value) silicon_here_read(msr, value)
#define wrmsrl_safe(msr, value) silicon_here_write(msr, value)
#define rdmsrl_safe_on_cpu(cpu, msr, value) silicon_read(cpu, msr, value)
#define rdmsr_safe_on_cpu(cpu, msr, low, high) silicon_read_halves(cpu, msr, low, high)
#define wrmsr_safe_on_cpu(cpu, msr, low, high) silicon_write(cpu, msr, (u64)(high) << 32 | (low))
#define smp_call_function_single(cpu, call, with, wait) silicon_call(cpu, call, with)
#endif
