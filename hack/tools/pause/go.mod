module olm-rs/tools/pause

go 1.26.0
