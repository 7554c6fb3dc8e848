//! Latencies counted in buckets that are at most 3 % wide, so that counting one costs a few instructions.

const STEPS: u64 = 32;

/// Counts of nanoseconds by size.
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    maximum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; 64 * STEPS as usize], total: 0, maximum: 0 }
    }
}

impl Histogram {
    /// The bucket of a value: its highest bit and the five bits behind it.
    fn bucket(value: u64) -> usize {
        if value < STEPS {
            return value as usize;
        }
        let shift = u64::from(63 - value.leading_zeros()) - 5;
        ((shift + 1) * STEPS + (value >> shift) - STEPS) as usize
    }

    /// The middle of a bucket.
    fn value(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < STEPS {
            return bucket;
        }
        let shift = bucket / STEPS - 1;
        ((bucket % STEPS + STEPS) << shift) + (1 << shift) / 2
    }

    /// Counts one value.
    pub fn add(&mut self, value: u64) {
        self.counts[Self::bucket(value)] += 1;
        self.total += 1;
        self.maximum = self.maximum.max(value);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The value below which `share` of all lie, as near as the buckets tell; 0 if there is none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= rank {
                return Self::value(bucket).min(self.maximum);
            }
        }
        0
    }

    /// The largest value.
    pub fn maximum(&self) -> u64 {
        self.maximum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_at_most_a_thirty_second_wide() {
        for value in (0..64).map(|bit| (1_u64 << bit) + (1 << bit) / 3).chain([0, 1, 31, 32, 33, 1_000_003, u64::MAX]) {
            let read = Histogram::value(Histogram::bucket(value));
            assert!(read.abs_diff(value) <= value / 32 + 1, "{value} is read as {read}");
        }
    }

    #[test]
    fn quantiles_follow_the_order() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        for value in 1..=1_000 {
            histogram.add(value * 1_000);
        }
        for (share, expected) in [(0.5, 500_000_u64), (0.9, 900_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let read = histogram.quantile(share);
            assert!(read.abs_diff(expected) <= expected / 32, "{share}: {read}");
        }
        assert_eq!(histogram.maximum(), 1_000_000);
    }
}
