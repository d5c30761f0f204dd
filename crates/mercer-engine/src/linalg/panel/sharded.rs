//! Panels whose rows are sharded over the ranks of a group.

use super::super::Sharding;
use super::Panel;
use crate::Result;
use crate::compute::Device;
use ndarray::{Array2, ArrayView2};

impl Panel {
    /// The vectors `[n, b]` on `device`, of which this process has the rows `own` `[n_r, b]`.
    pub fn sharded(device: Device, sharding: &Sharding, own: Array2<f64>) -> Result<Panel> {
        let panel = Panel::from_host(device, own)?.over(sharding);
        assert_eq!(panel.n, sharding.rows(panel.n).len(), "the rows of this rank");
        Ok(panel)
    }

    /// The same rows as those of vectors that are sharded so.
    pub(super) fn over(self, sharding: &Sharding) -> Panel {
        Panel { sharding: sharding.clone(), ..self }
    }

    /// How its rows are sharded.
    pub fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// The rows that this process has, as vectors of their own.
    pub fn own_panel(&self) -> Result<Panel> {
        Ok(self.try_clone()?.over(&Sharding::WHOLE))
    }

    /// All rows `[n, b]`, on the same device.
    pub fn whole(&self) -> Result<Panel> {
        self.try_clone()?.into_whole()
    }

    /// [`Self::whole`] without a copy where all rows are here.
    pub fn into_whole(self) -> Result<Panel> {
        if self.sharding.is_whole() { Ok(self) } else { Panel::from_host(self.device(), self.to_host()?) }
    }

    /// As [`Self::through_host`], with the rows that this process has.
    pub fn own_through_host(&self, f: impl FnOnce(ArrayView2<f64>) -> Result<Array2<f64>>) -> Result<Panel> {
        let found = self.moved_through_host(f)?;
        Ok(found.over(&self.sharding))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{
        Part, Shares,
        tests::{close, random},
    };
    use super::*;
    use ndarray::Axis;
    use std::sync::Arc;

    /// What panels whose rows three ranks share give, against the same in one process.
    #[test]
    fn sharded_panels_are_those_of_one_process() {
        let (v, w, small) = (random(40, 5, 1), random(40, 5, 2), random(5, 5, 3));
        let (few, factors) = ([33usize, 2, 17, 39], random(40, 1, 4));
        let all = |sharding: &Sharding| {
            let [mut a, b] = [&v, &w].map(|v| sharding.panel(Device::Cpu, v.view()).unwrap());
            let factors = sharding.panel(Device::Cpu, factors.view()).unwrap();
            let basis = a.try_clone().unwrap().orthonormal_basis().unwrap();
            a.axpy(&[1.0, -2.0, 0.5, 0.0, 3.0], &b).unwrap();
            a.add_product(0.5, &b, small.view()).unwrap();
            a.add_to_rows(&Part::Rows(&few), 2.0, &random(4, 5, 6).into()).unwrap();
            a.add_to_rows(&Part::All, -1.0, &b).unwrap();
            a.centre().unwrap();
            a.scale_rows(&factors);
            let inverse = a.through_host(|a| Ok(a.mapv(|a| a * a))).unwrap();
            let parts = [
                a.t_matmul(&b).unwrap(),
                a.t_times(&b).unwrap().into_host().unwrap(),
                a.dots(&b).unwrap().insert_axis(Axis(0)),
                a.norms().unwrap().insert_axis(Axis(0)),
                Array2::from_shape_vec((1, 2), a.residual_norms(&b, &[0.5, 2.0]).unwrap()).unwrap(),
                a.rows(&Part::Rows(&few)).unwrap().into_host().unwrap(),
                a.rows(&Part::Range(20..30)).unwrap().into_host().unwrap(),
                a.whole().unwrap().into_own_rows().unwrap(),
                sharding.gathered(a.own_panel().unwrap().into_host().unwrap()).unwrap(),
                // The basis itself is one of many.
                basis.t_matmul(&basis).unwrap(),
                b.outside(&basis).unwrap().joined(&inverse).unwrap().into_host().unwrap(),
                inverse.into_host().unwrap(),
            ];
            assert!(a.all_within(1e3).unwrap() && !a.all_within(1e-3).unwrap());
            assert_eq!((a.nrows(), a.ncols()), (40, 5));
            parts
        };
        let want = all(&Sharding::WHOLE);
        let found = crate::group::on_threads(3, |group| {
            // Ranks may have different numbers of rows.
            let own = [7, 20, 13][group.rank()];
            all(&Sharding::from(Arc::new(Shares::new(group, own).unwrap())))
        });
        for rank in &found {
            rank.iter().zip(&want).for_each(|(found, want)| close(found, want));
            assert_eq!(rank, &found[0], "all ranks have the same bits");
        }
    }
}
