//! Named figures in the order in which they were noted, printed as one JSON object.

use std::fmt;

/// What a run measured.
#[derive(Default)]
pub struct Report {
    figures: Vec<(&'static str, f64)>,
}

impl Report {
    /// Notes a figure. One that is not finite (a rate over no time) is noted as 0.
    pub fn note(&mut self, name: &'static str, value: f64) {
        self.figures.push((name, if value.is_finite() { value } else { 0.0 }));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{{")?;
        for (index, (name, value)) in self.figures.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(formatter, "{comma}\"{name}\": {value}")?;
        }
        write!(formatter, "}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_json() {
        let mut report = Report::default();
        report.note("received", 200_000.0);
        report.note("seconds", 1.5);
        report.note("rate", f64::NAN);
        assert_eq!(report.to_string(), r#"{"received": 200000, "seconds": 1.5, "rate": 0}"#);
    }
}
