//! Runs of a case: their number, their random choices, and the row of the table.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// How often most random cases run unless `OLM_HARD` sets another number.
const FEW: u32 = 3;

/// One case, from its first run to its row.
pub(crate) struct Case {
    name: &'static str,
    runs: u32,
    seed: u64,
    converged: u32,
    helped: u32,
    longest: Duration,
    started: Instant,
}

impl Case {
    /// A case without chance: it runs once.
    pub(crate) fn once(name: &'static str) -> Self {
        Self::random(name, 1)
    }

    /// A case that `OLM_HARD=all` runs `all` times.
    pub(crate) fn random(name: &'static str, all: u32) -> Self {
        Self::sampled(name, FEW, all)
    }

    /// A case that runs `few` times, and with `OLM_HARD=all` `all` times.
    pub(crate) fn sampled(name: &'static str, few: u32, all: u32) -> Self {
        let requested = match std::env::var("OLM_HARD").ok().as_deref() {
            Some("all") => all,
            Some(number) => number.parse().unwrap_or(few),
            None => few,
        };
        let seed = std::env::var("OLM_HARD_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
        let (runs, longest, started) = (requested.clamp(1, all), Duration::ZERO, Instant::now());
        let case = Self { name, runs, seed, converged: 0, helped: 0, longest, started };
        case.log(&format!("{} runs, OLM_HARD_SEED={}", case.runs, case.seed));
        case
    }

    /// Runs no more often than this.
    pub(crate) fn at_most(&mut self, runs: usize) {
        self.runs = self.runs.min(u32::try_from(runs).unwrap_or(u32::MAX));
    }

    /// How often to run.
    pub(crate) fn runs(&self) -> u32 {
        self.runs
    }

    /// The random choices of this case: they depend on the seed and the case's name only.
    pub(crate) fn dice(&self) -> StdRng {
        let named =
            self.name.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        StdRng::seed_from_u64(named)
    }

    /// One run has ended as it should, this long after its disturbance.
    pub(crate) fn converged(&mut self, since: Instant) {
        let took = since.elapsed();
        self.converged += 1;
        self.longest = self.longest.max(took);
    }

    /// One run needed help from outside of the product; it counts as converged, too.
    pub(crate) fn helped(&mut self) {
        self.helped += 1;
    }

    /// Prints a line, which is shown when the test fails.
    #[expect(clippy::print_stdout, reason = "shown when a test fails")]
    pub(crate) fn log(&self, what: &str) {
        println!("{} ({:.1} s): {what}", self.name, self.started.elapsed().as_secs_f64());
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let converged = match self.helped {
            0 => self.converged.to_string(),
            helped => format!("{} ({helped} with help)", self.converged),
        };
        let (Self { name, runs, seed, .. }, longest) = (&*self, self.longest.as_secs_f64());
        let row = format!("| {name} | {runs} | {converged} | {longest:.1} s | {seed} |\n");
        self.log(&row);
        let Some(path) = std::env::var_os("OLM_HARD_TABLE") else { return };
        // one write, so that rows of other threads do not get in between
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        if let Err(problem) = file.and_then(|mut file| file.write_all(row.as_bytes())) {
            self.log(&format!("cannot write the table: {problem}"));
        }
    }
}
