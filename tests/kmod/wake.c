// SPDX-License-Identifier: GPL-2.0
/*
 * Wakes a machine from suspend to idle. QEMU's real-time clock cannot: its alarm is an ACPI event
 * in S3 only.
 */
#include <linux/module.h>
#include <linux/suspend.h>
#include <linux/timer.h>

static unsigned int seconds;
module_param(seconds, uint, 0444);

static void wake(struct timer_list *unused)
{
	pm_system_wakeup();
}

static DEFINE_TIMER(timer, wake);

static int __init wake_init(void)
{
	mod_timer(&timer, jiffies + seconds * HZ);
	return 0;
}

static void __exit wake_exit(void)
{
	timer_delete_sync(&timer);
}

module_init(wake_init);
module_exit(wake_exit);
MODULE_DESCRIPTION("A timer that ends a suspend to idle");
MODULE_LICENSE("GPL");
