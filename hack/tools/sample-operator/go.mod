module olm-rs/tools/sample-operator

go 1.26.0
