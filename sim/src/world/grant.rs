//! What only whoever runs the processes can do: kill them, stop them, cut them off, set their clocks, edit records.

use std::sync::Arc;

use muster_model::{
    host::{
        FreezeMode, GlobalConfig,
        keys::{self, HostRecord},
    },
    store::{Store, StoreError, Txn},
};
use serde_json::{Value, json};

use super::{What, Wish, simulation::Simulation, site};

impl Simulation {
    /// Grants every wish that came up.
    pub async fn grant(&mut self) -> Result<(), StoreError> {
        for wish in self.world().take_wishes() {
            if wish.begins { self.begin(&wish).await? } else { self.end(&wish).await? }
        }
        Ok(())
    }

    async fn begin(&mut self, wish: &Wish) -> Result<(), StoreError> {
        let leader = self.leader();
        if let What::ClockJump { millis } = &wish.what {
            self.jumps.push(*millis);
        }
        match &wish.what {
            What::KillLeader
            | What::PauseLeader
            | What::CutLeader
            | What::ClockJump { .. }
            | What::ClockRate { .. } => {
                let Some(number) = leader else { return Ok(()) };
                self.struck.push((wish.what.clone(), number));
                match &wish.what {
                    What::KillLeader => self.kill(number),
                    What::PauseLeader => self.pause(number, true),
                    What::ClockJump { millis } => {
                        if let Some(process) = self.process(number) {
                            process.clock.jump(*millis);
                        }
                    }
                    What::ClockRate { rate } => {
                        if let Some(process) = self.process(number) {
                            process.clock.run_at(*rate);
                            self.world().state().judge.fast = Some((*rate, None));
                        }
                    }
                    _ => self.cut(number, true),
                }
            }
            What::StoreDown => self.cut_all(true),
            What::Bounds { pool, min, max } => self.edit_bounds(pool, *min, *max).await?,
            What::Freeze => self.freeze(FreezeMode::Frozen).await?,
            What::Maintenance { host } => {
                self.world().state().judge.maintained.insert(host.clone());
                self.edit_host(host, |spec| spec["admin"] = json!("maintenance")).await?;
            }
            What::Rotate { host } => self.rotate(host).await?,
            What::Acknowledge { host } => {
                let at = self.wall();
                let word = json!({"by": "somebody", "reason": "looked", "at": at});
                self.edit_host(host, |spec| spec["acknowledgement"] = word).await?;
            }
            What::Ask { host, on } => {
                let asked = if *on { "on" } else { "off" };
                self.edit_host(host, |spec| spec["powerState"] = json!(asked)).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn end(&mut self, wish: &Wish) -> Result<(), StoreError> {
        if let What::ClockJump { millis } = &wish.what {
            self.set_clocks_right(*millis);
            return Ok(());
        }
        let place = self.struck.iter().position(|(what, _)| *what == wish.what);
        let number = place.map(|place| self.struck.remove(place).1);
        match (&wish.what, number) {
            (What::KillLeader, Some(_)) => {
                let number = self.start().await?;
                self.cut(number, self.is_store_down());
            }
            (What::PauseLeader, Some(number)) => self.pause(number, false),
            (What::CutLeader, Some(number)) => self.cut(number, self.is_store_down()),
            (What::ClockRate { .. }, Some(number)) => {
                if let Some(process) = self.process(number) {
                    process.clock.run_at(1);
                    let now = self.world().now().millis();
                    let fast = &mut self.world().state().judge.fast;
                    *fast = fast.map(|(rate, _)| (rate, Some(now)));
                }
            }
            (What::StoreDown, _) => self.cut_all(false),
            (What::Bounds { pool, .. }, _) => {
                if let Some((min, max)) = self.bounds.get(pool).copied() {
                    self.edit_bounds(pool, min, max).await?;
                }
            }
            (What::Freeze, _) => self.freeze(FreezeMode::None).await?,
            (What::Maintenance { host }, _) => {
                self.clear(host, "admin").await?;
                self.world().state().judge.maintained.remove(host);
            }
            (What::Ask { host, .. }, _) => self.clear(host, "powerState").await?,
            _ => {}
        }
        Ok(())
    }

    /// Takes a field out of a host's record.
    async fn clear(&self, host: &str, field: &str) -> Result<(), StoreError> {
        self.edit_host(host, |spec| {
            if let Some(fields) = spec.as_object_mut() {
                fields.remove(field);
            }
        })
        .await
    }

    /// A clock that was set is set back: for the process that ran then, and for those that started since.
    fn set_clocks_right(&mut self, millis: i64) {
        if let Some(place) = self.jumps.iter().position(|one| *one == millis) {
            self.jumps.remove(place);
        }
        let what = What::ClockJump { millis };
        let (mine, others) = std::mem::take(&mut self.struck).into_iter().partition(|(one, _)| *one == what);
        self.struck = others;
        let mine: Vec<(What, usize)> = mine;
        for (_, number) in mine {
            if let Some(process) = self.process(number) {
                process.clock.jump(-millis);
            }
        }
    }

    /// Whether nobody reaches the store, whatever else ends or begins meanwhile.
    fn is_store_down(&self) -> bool {
        self.world().state().store_down_since.is_some()
    }

    fn cut(&self, number: usize, cut: bool) {
        if let Some(process) = self.process(number) {
            process.cut(cut);
        }
    }

    fn cut_all(&self, cut: bool) {
        for (_, process) in self.processes() {
            process.cut(cut);
        }
    }

    async fn freeze(&self, mode: FreezeMode) -> Result<(), StoreError> {
        let entry = self.store().get(keys::GLOBAL_CONFIG).await?;
        let mut global: GlobalConfig =
            entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default();
        global.freeze = mode;
        global.freeze_reason = (mode != FreezeMode::None).then(|| "somebody said so".to_owned());
        let value = serde_json::to_vec(&global).unwrap_or_default();
        self.store().commit(Txn::new().put(keys::GLOBAL_CONFIG, value)).await.map(drop)
    }

    /// A person gives a host's BMC an account that works.
    pub(crate) async fn rotate(&self, host: &str) -> Result<(), StoreError> {
        let now = self.world().now().millis();
        self.world().state().judge.wellness.rotate(host, now);
        self.edit_host(host, |spec| spec["bmcCredentials"] = json!(format!("bmc-{now}"))).await
    }

    /// Edits a host's record as a tool that knows only the store does.
    pub async fn edit_host(&self, host: &str, edit: impl FnOnce(&mut Value)) -> Result<(), StoreError> {
        self.edit_record(&keys::host(host, HostRecord::Spec), edit).await
    }

    async fn edit_bounds(&mut self, pool: &str, min: u32, max: u32) -> Result<(), StoreError> {
        let Some(place) = self.pools.iter().position(|name| name == pool) else { return Ok(()) };
        let key = muster_control::registry::Kind::Pool.object(site::pool_id(place));
        let mut before = None;
        self.edit_record(&key, |object| {
            let auto = &mut object["spec"]["autoscaling"];
            let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
            before = number(&auto["minNodes"]).zip(number(&auto["maxNodes"]));
            (auto["minNodes"], auto["maxNodes"]) = (json!(min), json!(max));
        })
        .await?;
        self.world().pool_may(pool, (min, max), false);
        if let Some(before) = before {
            self.bounds.entry(pool.to_owned()).or_insert(before);
        }
        Ok(())
    }

    async fn edit_record(&self, key: &str, edit: impl FnOnce(&mut Value)) -> Result<(), StoreError> {
        let store: Arc<dyn Store> = Arc::clone(self.store());
        let Some(entry) = store.get(key).await? else { return Ok(()) };
        let mut value: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        edit(&mut value);
        store.commit(Txn::new().put(key, serde_json::to_vec(&value).unwrap_or_default())).await.map(drop)
    }
}
