//! The external inputs of a node: limits, loads, ambient temperature and faults. They take effect with the next
//! inner step.

use super::{InputError, Plant, PowerLimitTerm, check_ambient, check_watts, present, refuse};
use crate::limiter::PowerLimit;
use crate::load::{Load, LoadJitter, LoadProfile};

impl Plant {
    /// Writes a policy's frequency limit, clamped to its range as by a driver; returns the written value.
    ///
    /// # Errors
    /// When there is no such policy.
    pub fn set_frequency(&mut self, policy: usize, khz: u32) -> Result<u32, InputError> {
        present(policy, self.policies.len())?;
        self.still = false;
        Ok(self.policies.write(policy, khz, self.stepped_us()))
    }

    /// Writes the same frequency limit to all policies.
    pub fn set_all_frequencies(&mut self, khz: u32) {
        self.still = false;
        for policy in 0..self.policies.len() {
            self.policies.write(policy, khz, self.stepped_us());
        }
    }

    /// Makes a policy accept writes without effect, or ends that.
    ///
    /// # Errors
    /// When there is no such policy.
    pub fn stick_policy(&mut self, policy: usize, stuck: bool) -> Result<(), InputError> {
        present(policy, self.policies.len())?;
        self.still = false;
        self.policies.stick(policy, stuck);
        Ok(())
    }

    /// Sets or removes one of a package's power limits.
    ///
    /// # Errors
    /// When there is no such package, or the limit is not between 0 and 100 kW over a window of up to 1,000 s.
    pub fn set_power_limit(
        &mut self,
        package: usize,
        term: PowerLimitTerm,
        limit: Option<PowerLimit>,
    ) -> Result<(), InputError> {
        present(package, self.packages.len())?;
        if let Some(PowerLimit { watts, window_s }) = limit {
            check_watts(watts)?;
            refuse(!(0.0..=1e3).contains(&window_s), "a window must lie between 0 and 1000 s")?;
        }
        self.still = false;
        let limiter = self.packages[package].limiter_mut();
        match term {
            PowerLimitTerm::Long => limiter.set_long(limit),
            PowerLimitTerm::Short => limiter.set_short(limit),
        }
        Ok(())
    }

    /// Sets a GPU's power cap, clamped to its range; returns the cap that applies.
    ///
    /// # Errors
    /// When there is no such GPU or the cap is not between 0 and 100 kW.
    pub fn set_gpu_cap(&mut self, gpu: usize, watts: f64) -> Result<f64, InputError> {
        present(gpu, self.gpus.len())?;
        check_watts(watts)?;
        self.still = false;
        Ok(self.gpus[gpu].set_cap(watts))
    }

    /// Locks a GPU's clock: it runs at no more than this fraction of its highest clock, and never below its lowest one.
    ///
    /// # Errors
    /// When there is no such GPU or the fraction is not between 0 and 1.
    pub fn lock_gpu_clock(&mut self, gpu: usize, highest: f64) -> Result<(), InputError> {
        present(gpu, self.gpus.len())?;
        refuse(!(0.0..=1.0).contains(&highest), "a clock must lie between 0 and 1")?;
        self.still = false;
        self.gpus[gpu].lock_clock(highest);
        Ok(())
    }

    /// Sets the same load on all cores.
    ///
    /// # Errors
    /// When a field of the load is out of its range.
    pub fn set_load(&mut self, load: Load) -> Result<(), InputError> {
        (0..self.cores()).try_for_each(|core| self.set_core_load(core, load))
    }

    /// Sets the load of one core.
    ///
    /// # Errors
    /// When there is no such core or a field of the load is out of its range.
    pub fn set_core_load(&mut self, core: usize, load: Load) -> Result<(), InputError> {
        present(core, self.cores())?;
        load.check()?;
        self.still = false;
        let (package, index) = self.policies.place(core);
        self.packages[package].set_load(index, load);
        Ok(())
    }

    /// Sets the load of one GPU.
    ///
    /// # Errors
    /// When there is no such GPU or a field of the load is out of its range.
    pub fn set_gpu_load(&mut self, gpu: usize, load: Load) -> Result<(), InputError> {
        present(gpu, self.gpus.len())?;
        load.check()?;
        self.still = false;
        self.gpus[gpu].set_load(load);
        Ok(())
    }

    /// Sets the profile of all cores' utilisation, counted from the node's start.
    ///
    /// # Errors
    /// When a factor is out of its range or the times are out of order.
    pub fn set_profile(&mut self, profile: LoadProfile) -> Result<(), InputError> {
        profile.check()?;
        self.still = false;
        self.cpu_load.play(profile);
        Ok(())
    }

    /// Sets the profile of all GPUs' utilisation, counted from the node's start.
    ///
    /// # Errors
    /// When a factor is out of its range or the times are out of order.
    pub fn set_gpu_profile(&mut self, profile: LoadProfile) -> Result<(), InputError> {
        profile.check()?;
        self.still = false;
        self.gpu_load.play(profile);
        Ok(())
    }

    /// Adds jitter to the cores' load, or ends it.
    ///
    /// # Errors
    /// When the deviation is not between 0 and 1 or the interval is zero.
    pub fn set_jitter(&mut self, jitter: Option<LoadJitter>) -> Result<(), InputError> {
        if let Some(LoadJitter { deviation, every }) = jitter {
            refuse(!(0.0..=1.0).contains(&deviation), "a deviation must lie between 0 and 1")?;
            refuse(every.get() == 0, "the interval must be above 0")?;
        }
        self.still = false;
        self.cpu_load.shake(jitter);
        Ok(())
    }

    /// Sets the temperature of the node's inlet air, °C.
    ///
    /// # Errors
    /// When it is not between −50 and 100 °C.
    pub fn set_ambient(&mut self, celsius: f64) -> Result<(), InputError> {
        check_ambient(celsius)?;
        self.still = false;
        self.ambient_c = celsius;
        Ok(())
    }
}
