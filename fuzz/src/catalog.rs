//! Property: of any hardware catalogue that is accepted every figure is one that a machine can have, and every model that is built in is
//! still found. What is refused is refused in one line of bounded length.

use planner::catalog::Catalog;
use power_units::{KiloHertz, Ratio, Watts};

pub(crate) fn run(bytes: &[u8]) {
    match catalog_file::parse(bytes) {
        Ok(catalog) => check(&catalog),
        Err(why) => {
            let why = why.to_string();
            assert!(!why.is_empty() && why.len() < 8_000, "{} bytes", why.len());
            assert!(!why.contains('\n'), "{why}");
        }
    }
}

fn check(catalog: &Catalog) {
    let (cpus, gpus) = Catalog::embedded_models();
    let most = Watts::from_int(100_000);
    for cpu in &cpus {
        let found = catalog.cpu(&cpu.key).expect("a built-in processor is there");
        assert!(found.tdp > Watts::ZERO && found.tdp <= most && found.most() <= most);
        assert!(found.least().is_none_or(|least| least > Watts::ZERO && least <= found.most()));
        assert!(found.base > KiloHertz::ZERO && found.boost > KiloHertz::ZERO);
        assert!(found.density.is_none_or(|density| density > Ratio::ZERO));
    }
    for gpu in &gpus {
        let found = catalog.gpu(&gpu.key).expect("a built-in graphics processor is there");
        assert!(found.max > Watts::ZERO && found.max <= most);
        assert!(found.min.is_none_or(|min| min > Watts::ZERO && min <= found.max));
    }
}
