//! Rates that are printed one after the other, and whether their sum over time makes what was counted: what a reader of the lines adds
//! up has to be true.

/// A column of lines: what its rates make over their time, and how far rounding may have put that off.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByTime {
    made: f64,
    off: f64,
}

impl ByTime {
    /// A rate as it is printed, in steps of this size, which held for so many seconds.
    pub fn print(&mut self, rate: f64, step: f64, seconds: f64) -> f64 {
        let printed = (rate / step).round() * step;
        self.made += printed * seconds;
        self.off += 0.6 * step * seconds;
        printed
    }

    /// Holds the sum against what was counted; less than that is good where it `may_lack` some.
    ///
    /// # Errors
    ///
    /// One line that names the column and both sums.
    pub fn check(self, name: &str, counted: f64, may_lack: bool) -> Result<(), String> {
        let more = self.made - counted;
        if more > self.off || (!may_lack && -more > self.off) {
            return Err(format!(
                "BOOKS DO NOT CLOSE: {name} by time makes {:.0}, and {counted:.0} were counted",
                self.made
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What three windows of different lengths make of so many things in each.
    fn column() -> (ByTime, f64) {
        let mut column = ByTime::default();
        let windows = [(1_001.0, 0.333), (1_002.0, 0.444), (1_004.0, 0.223)];
        for (count, seconds) in windows {
            column.print(count / seconds, 1.0, seconds);
        }
        (column, windows.iter().map(|(count, _)| count).sum())
    }

    #[test]
    fn rates_by_time_make_what_was_counted() {
        let (column, counted) = column();
        assert_eq!(column.check("ms", counted, false), Ok(()));
    }

    #[test]
    fn a_column_that_makes_more_or_less_is_named_unless_it_may_lack_some() {
        let (column, counted) = column();
        for (other, may_lack) in [(counted - 1.0, false), (counted - 1.0, true), (counted + 1.0, false)] {
            let line = column.check("ms", other, may_lack).expect_err("one is off");
            assert!(line.starts_with("BOOKS DO NOT CLOSE: ms by time makes 3007,"), "{line}");
        }
        assert_eq!(column.check("ms", counted + 1.0, true), Ok(()));
    }
}
