// SPDX-License-Identifier: GPL-2.0-only
/* kexec KERNEL INITRD COMMAND-LINE: loads a kernel and starts it, without the firmware. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/reboot.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	int kernel = open(words[1], O_RDONLY), initrd = open(words[2], O_RDONLY);
	if (syscall(SYS_kexec_file_load, kernel, initrd, strlen(words[3]) + 1, words[3], 0UL)) {
		perror("loading the kernel");
		return 1;
	}
	sync();
	syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_KEXEC, NULL);
	perror("starting the kernel");
	return 1;
}
