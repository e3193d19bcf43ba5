//! Parsers of the files below `/proc`: text in, numbers out, `None` for anything that is not as expected.
//!
//! Nothing here opens a file. The formats are those of proc(5) and of the kernel's
//! `Documentation/scheduler/sched-stats.rst`.

use crate::table::plain_ascii;

/// The longest model name that is kept, in characters.
const MODEL_LIMIT: usize = 100;

/// CPU time of all cores together, in clock ticks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuTicks {
    /// Time that the host of this virtual machine gave to others.
    pub steal: u64,
    /// All time, idle and stolen included.
    pub total: u64,
}

impl CpuTicks {
    /// The share of the time between an earlier reading and this one that was stolen, 0 to 1.
    ///
    /// Nothing when no tick has passed.
    #[must_use]
    pub fn steal_share_since(&self, earlier: &Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total).filter(|total| *total > 0)?;
        Some(self.steal.checked_sub(earlier.steal)? as f64 / total as f64)
    }
}

/// The processor's model from `/proc/cpuinfo`.
pub(super) fn cpu_model(cpuinfo: &str) -> Option<String> {
    let value = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    };
    let model = cpuinfo.lines().find_map(value).filter(|model| !model.is_empty())?;
    Some(plain_ascii(&model.chars().take(MODEL_LIMIT).collect::<String>()))
}

/// How many cores are online, from the lines `cpu0`, `cpu1`, ... of `/proc/stat`.
pub(super) fn cores_online(stat: &str) -> Option<u32> {
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    u32::try_from(stat.lines().filter(is_core).count()).ok().filter(|count| *count > 0)
}

/// All of the memory in bytes, from `/proc/meminfo`.
pub(super) fn memory_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

/// Time on a core and time waiting for one, in nanoseconds, from a task's `schedstat`.
pub(super) fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_whitespace();
    let run_ns = fields.next()?.parse().ok()?;
    let run_delay_ns = fields.next()?.parse().ok()?;
    Some((run_ns, run_delay_ns))
}

/// Ticks in the program and in the kernel, from a task's or a process's `stat`.
///
/// The second field is the name in parentheses and may itself hold blanks and parentheses, so the fields are
/// counted from the last closing one; `utime` and `stime` are fields 14 and 15.
pub(super) fn user_and_sys_ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user = fields.next()?.parse().ok()?;
    let sys = fields.next()?.parse().ok()?;
    Some((user, sys))
}

/// All cores together, from the first line of `/proc/stat`.
///
/// Guest time (fields 9 and 10) is in `user` and `nice` already and is not added again.
pub(super) fn cpu_ticks(stat: &str) -> Option<CpuTicks> {
    let fields = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = fields.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let steal = *ticks.get(7)?;
    let total = ticks.iter().try_fold(0, |sum: u64, ticks| sum.checked_add(*ticks))?;
    Some(CpuTicks { steal, total })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 167\n\
                           model name\t: Intel(R) Xeon(R) Processor\nstepping\t: 1\n\n\
                           processor\t: 1\nmodel name\t: Another\n";
    const STAT: &str = "cpu  2943 0 1612 153807 482 0 81 28 7 9\n\
                        cpu0 1083 0 562 77820 29 0 32 13 0 0\n\
                        cpu1 1859 0 1050 75986 452 0 48 14 0 0\n\
                        intr 2013 0 0 0\nctxt 63000\nbtime 1700000000\nprocesses 5299\nprocs_running 1\n";
    const TASK_STAT: &str = "5297 (cat) R 5253 5253 3663 0 -1 4194304 102 0 0 0 17 4 0 0 20 0 1 0 79770 3133440 \
                             414 18446744073709551615 94641187483648 94641187503529 140723377365760 0 0 0 0 0 0 \
                             0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn the_model_is_the_first_cores() {
        assert_eq!(cpu_model(CPUINFO).as_deref(), Some("Intel(R) Xeon(R) Processor"));
        assert_eq!(cpu_model("processor\t: 0\nBogoMIPS\t: 50.00\nCPU part\t: 0xd0c\n"), None);
        assert_eq!(cpu_model("model name\t:\n"), None);
    }

    #[test]
    fn a_model_name_is_cut_at_its_limit_and_made_printable() {
        for (length, kept) in
            [(MODEL_LIMIT - 1, MODEL_LIMIT - 1), (MODEL_LIMIT, MODEL_LIMIT), (MODEL_LIMIT + 1, MODEL_LIMIT)]
        {
            let text = format!("model name\t: {}\n", "\u{e9}".repeat(length));
            assert_eq!(cpu_model(&text).unwrap(), "?".repeat(kept));
        }
    }

    #[test]
    fn cores_are_counted_without_the_sum_of_them() {
        assert_eq!(cores_online(STAT), Some(2));
        assert_eq!(cores_online("cpu  1 2 3\n"), None);
        assert_eq!(cores_online("cpufreq 1\ncpu 1\n"), None);
    }

    #[test]
    fn memory_is_in_bytes() {
        let text = "MemTotal:       24684084 kB\nMemFree:        24126380 kB\n";
        assert_eq!(memory_bytes(text), Some(24_684_084 * 1_024));
        assert_eq!(memory_bytes("MemTotal: 18446744073709551615 kB\n"), None);
        assert_eq!(memory_bytes("MemTotal: 5 MB\n"), None);
        assert_eq!(memory_bytes(""), None);
    }

    #[test]
    fn schedstat_is_run_time_and_waiting_time() {
        assert_eq!(schedstat("951533 36207 1\n"), Some((951_533, 36_207)));
        assert_eq!(schedstat("951533"), None);
        assert_eq!(schedstat("951533 -1 1"), None);
        assert_eq!(schedstat(""), None);
    }

    #[test]
    fn ticks_are_the_fields_after_the_name() {
        assert_eq!(user_and_sys_ticks(TASK_STAT), Some((17, 4)));
    }

    #[test]
    fn a_name_may_hold_blanks_and_parentheses() {
        for name in ["(sd-pam)", "tmux: server", "a) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14", "((()"] {
            let text = TASK_STAT.replacen("cat", name, 1);
            assert_eq!(user_and_sys_ticks(&text), Some((17, 4)), "{name}");
        }
    }

    #[test]
    fn a_line_that_ends_before_its_ticks_is_none() {
        assert_eq!(user_and_sys_ticks("1 (x) S 0 1 1 0 -1 0 0 0 0 0 17 4"), Some((17, 4)));
        assert_eq!(user_and_sys_ticks("1 (x) S 0 1 1 0 -1 0 0 0 0 0 17"), None);
        assert_eq!(user_and_sys_ticks("1 x S 0 1 1 0 -1 0 0 0 0 0 17 4"), None);
        assert_eq!(user_and_sys_ticks(""), None);
    }

    #[test]
    fn steal_is_the_eighth_field_and_guests_are_not_counted_twice() {
        let expected = CpuTicks { steal: 28, total: 2_943 + 1_612 + 153_807 + 482 + 81 + 28 };
        assert_eq!(cpu_ticks(STAT), Some(expected));
        assert_eq!(cpu_ticks("cpu  1 2 3 4 5 6 7 8\n"), Some(CpuTicks { steal: 8, total: 36 }));
        assert_eq!(cpu_ticks("cpu  1 2 3 4 5 6 7\n"), None);
        assert_eq!(cpu_ticks("cpu0 1 2 3 4 5 6 7 8\n"), None);
        assert_eq!(cpu_ticks("cpu  18446744073709551615 1 0 0 0 0 0 0\n"), None);
    }

    #[test]
    fn the_stolen_share_is_of_the_time_between_two_readings() {
        let earlier = CpuTicks { steal: 10, total: 1_000 };
        let later = CpuTicks { steal: 15, total: 2_000 };
        assert_eq!(later.steal_share_since(&earlier), Some(0.005));
        assert_eq!(earlier.steal_share_since(&earlier), None);
        assert_eq!(earlier.steal_share_since(&later), None);
    }
}
