# What there is to do here; `make` or `make help` lists it. Everything is built by cargo and go; see CONTRIBUTING.md.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

CARGO ?= cargo
# dev is what tests use too; `make demo PROFILE=release` runs what users get
PROFILE ?= dev
target_dir = $(or $(CARGO_TARGET_DIR),target)
programs_dir = $(target_dir)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
kit = $(programs_dir)/olm-kit
venv = $(target_dir)/venv
export CARGO_TERM_COLOR ?= auto

locked = $(if $(CI),--locked)
# Which packages are built together decides the features of what they share, and so how often that is compiled. Tests, and
# everything on a build server, use what the whole workspace and its tests ask for (the smallest test brings in the
# dependencies of tests); a single program built by hand needs less.
build = $(CARGO) build $(locked) --profile $(PROFILE) $(if $(CI),$(everything),$(1))
of_tests = --workspace --test go_vectors $(addprefix --bin ,$(1))
everything = $(call of_tests,$(PROGRAMS) olm-kit xtask olm-images olm-release)
PROGRAMS = catalogd operator-controller cluster-operator classic-controller kubectl-olm
with_programs = OLM_BIN_DIR=$(abspath $(programs_dir))

# the tools that a target needs; progress goes to the terminal, the folder to OLM_TOOLS
reference_tools = OLM_TOOLS="$${OLM_TOOLS:-$$(OLM_TOOLS_ONLY='kubernetes kwok registry opm classic' hack/tools/build.sh)}"; export OLM_TOOLS
classic_tools = OLM_TOOLS="$${OLM_TOOLS:-$$(OLM_TOOLS_ONLY='kubernetes kwok registry opm' hack/tools/build.sh)}"; export OLM_TOOLS
demo_tools = OLM_TOOLS="$${OLM_TOOLS:-$$(OLM_TOOLS_ONLY='kubernetes kwok registry' hack/tools/build.sh)}"; export OLM_TOOLS
manifest_tools = OLM_TOOLS="$${OLM_TOOLS:-$$(OLM_TOOLS_ONLY='kubernetes helm api-lint actionlint rule-test' hack/tools/build.sh)}"; export OLM_TOOLS
release_tools = OLM_TOOLS="$${OLM_TOOLS:-$$(OLM_TOOLS_ONLY='kubernetes helm' hack/tools/build.sh)}"; export OLM_TOOLS
node_modules = kubernetes registry node containerd cni coredns pause sample-operator helm
node_tools = [ -x "$${OLM_TOOLS:-}/kubelet" ] || OLM_TOOLS="$$(OLM_TOOLS_ONLY='$(node_modules)' hack/tools/build.sh)"; export OLM_TOOLS
gitops_tools = OLM_TOOLS="$$(OLM_TOOLS_ONLY='kubernetes kwok registry argocd-health kustomize-controller' hack/tools/build.sh)"; export OLM_TOOLS
# a folder of tools whose kube-apiserver is the oldest that is supported
oldest = $(abspath $(target_dir))/oldest-tools
oldest_tools = tools="$$(OLM_TOOLS_ONLY='kubernetes helm kwok registry kubeconform kubernetes-1.31' hack/tools/build.sh)"; rm -rf $(oldest); \
    mkdir -p $(oldest); ln -s "$$tools"/* $(oldest)/; for program in kube-apiserver kube-scheduler; do ln -sf "$$tools/$$program-1.31" $(oldest)/$$program; done; OLM_TOOLS=$(oldest); export OLM_TOOLS
all_tools = OLM_TOOLS="$${OLM_TOOLS:-$$(hack/tools/build.sh)}"; export OLM_TOOLS

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: tools
tools: ## Build the control plane, kwok, registry and opm; the last line is their folder
	@hack/tools/build.sh

.PHONY: build
build: ## Build the five programs (PROFILE=release: optimised)
	$(call build,$(addprefix -p ,$(PROGRAMS)))

# only what a target runs
.PHONY: programs kit
programs:
	@$(call build,$(addprefix -p ,$(PROGRAMS)) -p olm-kit)
kit:
	@$(call build,-p olm-kit)

.PHONY: test
test: ## Run the tests that need no control plane, and the core ones on one; ARGS="-p olm-core": what `cargo test` takes
ifdef ARGS
	@$(if $(findstring olm-integration,$(ARGS))$(findstring olm-kit,$(ARGS))$(findstring --workspace,$(ARGS)),$(all_tools);) \
	    $(CARGO) test $(locked) $(ARGS)
else
	@$(call build,$(everything))
	@$(all_tools); $(with_programs) $(kit) test core
endif

.PHONY: test-all
test-all: ## Run all other tests: faults, failover, real content, documentation, deployment, oracles, images, a real node
	@$(call build,$(everything))
	@$(all_tools); $(with_programs) $(kit) test rest
	@$(MAKE) test-images
	@$(MAKE) test-node

.PHONY: test-apiserver
test-apiserver: ## Compare the simulated apiserver with a real one in generated request sequences (SEQUENCES=2000; SEED=n: the first)
	@$(call build,$(everything))
	@$(demo_tools); OLM_SIMULATION_SEQUENCES=$(or $(SEQUENCES),2000) $(if $(SEED),OLM_SIMULATION_SEED=$(SEED)) \
	    $(CARGO) test $(locked) --workspace --test conformance -- --nocapture

resolver_tools = OLM_TOOLS="$${OLM_TOOLS:-$$(OLM_TOOLS_ONLY='classic-resolver' hack/tools/build.sh)}"
.PHONY: oracle-classic
oracle-classic: ## Compare the dependency solver with OLM Classic's in generated namespaces (N=20000; SEED=n: repeat them)
	@$(resolver_tools); $(CARGO) run $(locked) --release -p olm-solver --example oracle -- \
	    "$$OLM_TOOLS/oracle-classic-resolver" $(or $(N),20000) $(SEED)

installs = 20,100
copies = 200,1000
.PHONY: tools-classic
tools-classic: ## Build OLM Classic's reference, which bench-classic measures beside classic-controller
	@OLM_TOOLS_ONLY=classic hack/tools/build.sh

.PHONY: bench-classic
bench-classic: tools-classic ## Measure OLM Classic's solver and controllers beside the reference's (REFERENCE=20 SIZES=20,100 NAMESPACES=200,1000 REST=120 CATALOG=128)
	@$(resolver_tools); export OLM_TOOLS; $(CARGO) bench $(locked) -p olm-solver --bench classic
	@$(call build,$(everything))
	$(CARGO) build $(locked) --release --workspace --bin classic-controller
	@$(reference_tools); OLM_CLASSIC_REFERENCE=$(or $(REFERENCE),20) OLM_CLASSIC=$(or $(SIZES),$(installs)) OLM_CLASSIC_NAMESPACES=$(or $(NAMESPACES),$(copies)) OLM_REST=$(or $(REST),120) \
	    OLM_CLASSIC_CATALOG=$(or $(CATALOG),128) OLM_BIN_DIR=$(abspath $(target_dir)/release) \
	    $(CARGO) bench $(locked) --profile dev --workspace --bench classic_controllers

.PHONY: test-hard
test-hard: ## Run every fault-injection test as often as it asks for, and print the table (OLM_HARD_SEED=n repeats random choices)
	@$(call build,$(everything))
	@$(all_tools); table=$(abspath $(target_dir))/fault-injection.md; rm -f "$$table"; outcome=0; \
	    OLM_HARD=all OLM_HARD_TABLE="$$table" $(with_programs) \
	    $(CARGO) test $(locked) --workspace --test hard || outcome=$$?; \
	    printf '\n| case | runs | converged | longest | seed |\n|---|---:|---:|---:|---:|\n'; sort "$$table"; exit $$outcome

.PHONY: test-hostile
test-hostile: ## Read hostile images, bundles and registries with optimised programs in 512 MiB, and print the table (ONLY=text,…: some of them)
	@$(call build,$(everything))
	$(CARGO) build $(if $(CI),--locked) --release --workspace --bin catalogd --bin operator-controller --bin classic-controller
	@$(all_tools); OLM_HOSTILE=all OLM_HOSTILE_ONLY='$(ONLY)' OLM_BIN_DIR=$(abspath $(target_dir)/release) \
	    $(CARGO) test $(locked) --workspace --test hostile -- --nocapture --test-threads=1 hostile_content

fleet = 1000,20
.PHONY: scale
scale: ## Measure 100 extensions, and 1,000 over 20 catalogs, and fail if a figure is above its bound (FLEET=N,M: another fleet)
	@$(call build,$(everything))
	$(CARGO) build $(if $(CI),--locked) --release --workspace --bin catalogd --bin operator-controller
	@$(all_tools); OLM_SCALE=100 OLM_FLEET=$(or $(FLEET),$(fleet)) OLM_BIN_DIR=$(abspath $(target_dir)/release) \
	    $(CARGO) bench $(if $(CI),--locked) --profile dev --workspace --bench scale

.PHONY: soak
soak: ## Churn on a real control plane, with checks of what must hold after it (MINUTES=30, SEED=n: repeat its choices)
	@$(call build,$(everything))
	@$(all_tools); OLM_SOAK_MINUTES=$(or $(MINUTES),30) $(if $(SEED),OLM_SOAK_SEED=$(SEED)) $(with_programs) \
	    $(CARGO) test $(locked) --workspace --test soak -- --nocapture --exact soak_churn_leaves_nothing_behind

simulate = $(target_dir)/simulation/simulate
.PHONY: simulate
simulate: ## Run controllers on a simulated apiserver (SCENARIO=classic, SEEDS=1000, FIRST=1, JOBS; SEED=n: a trace, WITHOUT=0,3)
	@$(CARGO) build $(locked) --profile simulation -p olm-simulation --bin simulate
	@$(simulate) --scenario $(or $(SCENARIO),v1) $(if $(SEED),--seed $(SEED) --trace $(if $(WITHOUT),--without $(WITHOUT)), \
	    --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),1) $(if $(JOBS),--jobs $(JOBS)))

.PHONY: simulate-without-fixes
simulate-without-fixes: ## Take out each fix of tests/simulation/without_fixes, and run schedules until the simulation finds it (ONLY=f3)
	@$(call build,-p xtask)
	@$(programs_dir)/xtask without-fixes simulation $(ONLY)

.PHONY: test-without-fixes
test-without-fixes: ## Take out each fix of tests/without_fixes, and run the tests that then have to fail (ONLY=f1-patterns)
	@$(call build,-p xtask)
	@$(demo_tools); $(programs_dir)/xtask without-fixes tests $(ONLY)

.PHONY: test-upgrade
test-upgrade: ## Replace another commit's programs by today's on a live system, and go back (FROM=191c6fd, SECONDS=60 side by side)
	@$(call build,$(everything))
	@$(demo_tools); from="$$(hack/old-programs.sh $(or $(FROM),191c6fd))"; \
	    OLM_UPGRADE_FROM="$$from" OLM_UPGRADE_SECONDS=$(or $(SECONDS),60) $(with_programs) \
	    $(CARGO) test $(locked) --workspace --test operations -- --nocapture --exact \
	    upgrade::upgrade_and_rollback_write_nothing

.PHONY: test-gitops
test-gitops: ## Install olm-rs and an extension from git with Flux's kustomize-controller, which is built for it
	@$(call build,$(everything))
	@$(gitops_tools); OLM_GITOPS=1 $(with_programs) $(CARGO) test $(locked) --workspace --test deploy -- --nocapture --exact \
	    gitops::gitops_flux_installs_repairs_and_prunes

.PHONY: test-oldest
test-oldest: ## Check every manifest with the oldest supported apiserver, which is built for it, and run the API tests and the acceptance lab on it
	@$(call build,$(everything))
	@$(oldest_tools); $(with_programs) $(CARGO) test $(locked) --workspace --test deploy -- --nocapture --exact \
	    accepted::manifests_are_accepted_and_fit_their_schemas; \
	    $(with_programs) $(CARGO) test $(locked) --workspace --test api; $(MAKE) acceptance OLDEST=1

.PHONY: demo
demo: programs ## Show the main job on a cluster of its own (ONESHOT=1: end after the last step; CATALOG=ref or folder: that catalog; CLASSIC=1: OLM Classic)
	@$(demo_tools); OLM_BIN_DIR=$(abspath $(programs_dir)) exec $(kit) demo $(if $(filter-out 0,$(ONESHOT)),--oneshot) $(if $(CATALOG),--catalog '$(CATALOG)') $(if $(filter-out 0,$(CLASSIC)),--classic)

.PHONY: demo-down
demo-down: ## Stop a running demo
	@if [ -x $(kit) ]; then $(kit) demo-down; else echo "no demo is running"; fi

.PHONY: cluster-up
cluster-up: kit ## Start a control plane and a registry to play with (NODE=real: with a node that runs pods; root on Linux)
	@$(if $(filter real,$(NODE)),hack/node-packages.sh; $(node_tools),$(demo_tools)); $(kit) cluster up $(if $(NODE),--node $(NODE))

.PHONY: cluster-down
cluster-down: ## Stop them
	@if [ -x $(kit) ]; then $(kit) cluster down; else echo "no local cluster is running"; fi

.PHONY: generate
generate: ## Write the files that are made from types
	@$(call build,-p xtask)
	$(programs_dir)/xtask generate

# what the workflows mean; scripts in them are bash, which is checked where they run
actionlint = "$$OLM_TOOLS/actionlint" -shellcheck= -pyflakes= && echo "checked  .github/workflows"

.PHONY: verify
verify: ## Fail if generated files are not current, a crate uses what it may not, or manifests do not fit
	@$(call build,-p xtask)
	$(programs_dir)/xtask verify
	@$(manifest_tools); $(programs_dir)/xtask manifests; $(actionlint)

.PHONY: conformance
conformance: ## Check the conformance pages, and print each gap and the number of rows of each verdict
	@$(call build,-p xtask)
	@$(programs_dir)/xtask conformance

.PHONY: figures
figures: ## Print sizes, watches, stores, words, citations, test programs and times of the last runs (CHECKOUT=DIR; FORMAT=json)
	@$(call build,-p xtask)
	@$(programs_dir)/xtask figures $(if $(CHECKOUT),--checkout $(CHECKOUT)) $(if $(FORMAT),-o $(FORMAT))

.PHONY: lint
lint: ## Check formatting and lints, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(if $(CI),--locked) --workspace --all-targets -- -D warnings

# What the lock file holds, against deny.toml. The check itself uses no network; a crate that no build here needs (of another platform,
# or of fuzzing) must be fetched for it.
DENY_VERSION = 0.20.2
deny_dir = $(target_dir)/cargo-deny-$(DENY_VERSION)

.PHONY: deny
deny: ## Check licenses, sources and banned crates with cargo-deny (ADVISORIES=1: fetch RustSec's database and check that, too)
	@test -x $(deny_dir)/bin/cargo-deny || $(CARGO) install --locked --version $(DENY_VERSION) --root $(deny_dir) cargo-deny
	$(CARGO) fetch --locked
	$(deny_dir)/bin/cargo-deny $(if $(filter-out 0,$(ADVISORIES)),,--offline) --all-features --log-level error check \
	    bans licenses sources $(if $(filter-out 0,$(ADVISORIES)),advisories)

# The search of the site is in the pages; what mdBook needs to serve and watch is left out.
MDBOOK_VERSION = 0.5.4
mdbook_dir = $(target_dir)/mdbook-$(MDBOOK_VERSION)
book = $(abspath $(target_dir))/book

.PHONY: docs
docs: ## Build the documentation as a site, target/book/html, with mdBook, and check its links
	@test -x $(mdbook_dir)/bin/mdbook || $(CARGO) install --locked --version $(MDBOOK_VERSION) --no-default-features --features search \
	    --root $(mdbook_dir) mdbook
	@$(call build,-p xtask)
	@$(programs_dir)/xtask book $(book)
	@$(mdbook_dir)/bin/mdbook build $(book)
	@$(programs_dir)/xtask book --check $(book)/html

TYPOS_VERSION = 1.52.0
typos_dir = $(target_dir)/typos-$(TYPOS_VERSION)

.PHONY: spelling
spelling: ## Find misspelt words in code and pages with typos
	@test -x $(typos_dir)/bin/typos || $(CARGO) install --locked --version $(TYPOS_VERSION) --root $(typos_dir) typos-cli
	@$(typos_dir)/bin/typos --config hack/typos.toml

ZIZMOR_VERSION = 1.32.0
zizmor_dir = $(target_dir)/zizmor-$(ZIZMOR_VERSION)

.PHONY: workflows
workflows: ## Find what zizmor calls unsafe in the workflows (needs Python 3)
	@test -x $(zizmor_dir)/bin/zizmor || { python3 -m venv $(zizmor_dir) && \
	    $(zizmor_dir)/bin/pip install --quiet --disable-pip-version-check zizmor==$(ZIZMOR_VERSION); }
	@$(zizmor_dir)/bin/zizmor --offline .github

.PHONY: acceptance
acceptance: programs ## Run the acceptance lab under the manifests' RBAC (ONLY=regex, JOBS=4, UPDATE=1: write what passes; RBAC=0: all rights)
	@python=$$(hack/lab-python.sh $(venv)); $(demo_tools); $(kit) acceptance --python "$$python" --programs $(programs_dir) \
	    $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs $(JOBS)) $(if $(UPDATE),--update) $(if $(SAVE),--save $(SAVE)) \
	    $(if $(filter-out 0,$(or $(RBAC),1)),--rbac) $(if $(OLDEST),--oldest)

.PHONY: acceptance-classic
acceptance-classic: ## Run the acceptance lab of OLM Classic (ONLY=regex, JOBS=4, UPDATE=1: write what passes)
	@$(call build,-p classic-controller -p olm-kit)
	@python=$$(hack/lab-python.sh $(venv)); $(classic_tools); $(kit) acceptance --classic --python "$$python" --programs $(programs_dir) \
	    $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs $(JOBS)) $(if $(UPDATE),--update) $(if $(SAVE),--save $(SAVE))

.PHONY: compare-classic
compare-classic: ## Run scenarios on OLM Classic's reference and on classic-controller, and print where they differ (ONLY=regex, JOBS=4; root)
	@$(call build,-p classic-controller)
	@$(reference_tools); JOBS=$(or $(JOBS),4) hack/compare-classic.sh $(programs_dir) '$(ONLY)'

.PHONY: test-completion
test-completion: ## Run the completion scripts in the real bash, zsh and fish (SHELLS="zsh fish": those beside bash; they must be installed)
	@OLM_COMPLETION_SHELLS='$(or $(SHELLS),zsh fish)' $(CARGO) test $(locked) -p kubectl-olm --test commands completion -- --nocapture

.PHONY: recordings
recordings: ## Run the documentation's commands and record them as asciicasts in target/recordings (PAGE=getting-started: that page)
	@$(call build,$(everything))
	@$(all_tools); OLM_RECORDINGS=$(abspath $(target_dir)/recordings) $(if $(PAGE),OLM_DOCS='$(PAGE)') $(with_programs) \
	    $(CARGO) test $(locked) --workspace --test docs -- --nocapture docs_blocks
	@ls -1 $(target_dir)/recordings/*.cast

.PHONY: test-plan
test-plan: ## Compare the plans of kubectl-olm with what the controller does, in every scenario of the acceptance lab (ONLY=regex, JOBS=4)
	@$(call build,$(addprefix -p ,$(PROGRAMS)) -p olm-kit)
	@python=$$(hack/lab-python.sh $(venv)); $(demo_tools); $(kit) acceptance --plans --python "$$python" --programs $(programs_dir) \
	    $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs $(JOBS)) --rbac

.PHONY: acceptance-exact
acceptance-exact: ## Run the lab whole and sort what differs from the reference at level exact into classes
	@$(MAKE) acceptance ONLY= UPDATE= SAVE=$(target_dir)/lab
	@$$(hack/lab-python.sh $(venv)) hack/lab-exact.py $(target_dir)/lab

# what an image may hold: programs that need no other file. Another architecture needs its C compiler and
# `rustup target add`: PLATFORMS="linux/amd64 linux/arm64".
IMAGE_PROGRAMS = catalogd operator-controller cluster-operator classic-controller
RELEASE_PROGRAMS = $(IMAGE_PROGRAMS) kubectl-olm
this_platform := linux/$(subst aarch64,arm64,$(subst x86_64,amd64,$(shell uname -m)))
PLATFORMS ?= $(this_platform)
rust_target = $(if $(filter-out $(this_platform),$(1)),$(subst linux/arm64,aarch64-unknown-linux-gnu,$(subst linux/amd64,x86_64-unknown-linux-gnu,$(1))))
profile_dir = $(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
static_dir = $(target_dir)/static/$(subst linux/,,$(1))/$(profile_dir)
# what `version` says
stamp = OLM_COMMIT=$$(git rev-parse HEAD) OLM_COMMIT_DATE=$$(git log -1 --format=%cI) \
    OLM_TREE_STATE=$$(if [ -z "$$(git status --porcelain)" ]; then echo clean; else echo dirty; fi)

# A build server has built already what the tests share. What users get, the release profile, has none of it.
static_programs = $(if $(and $(CI),$(filter dev,$(PROFILE))),$(call of_tests,$(RELEASE_PROGRAMS)),$(addprefix -p ,$(RELEASE_PROGRAMS)))

# for one platform; the next `cargo build` links those that tests use into cargo's own folder again
define static_platform
$(stamp) RUSTC_WORKSPACE_WRAPPER=$(abspath hack/images/rustc-static.sh) $(CARGO) build $(if $(CI),--locked) --profile $(PROFILE) \
    $(addprefix --target ,$(call rust_target,$(1))) $(static_programs)
@mkdir -p $(call static_dir,$(1)); ln -f $(foreach program,$(RELEASE_PROGRAMS),\
    $(target_dir)/$(addsuffix /,$(call rust_target,$(1)))$(profile_dir)/$(program)) $(call static_dir,$(1))/

endef

.PHONY: static
static:
	$(foreach platform,$(PLATFORMS),$(call static_platform,$(platform)))

# makes images of built programs and pushes them, and the files of a release; of the profile that tests use, whatever the programs
# are built with
olm_images = $(target_dir)/debug/olm-images
olm_release = $(target_dir)/debug/olm-release
# programs of tests are large, and their images and archives go nowhere
compression = $(if $(filter dev,$(PROFILE)),1,6)

.PHONY: images
images: PROFILE = release
images: static ## Make the OCI images in target/images (PLATFORMS, VERSION; PUSH=registry/path: push them; CA_FILE, PLAIN_HTTP=1; PROFILE=dev)
	@$(CARGO) build $(if $(CI),--locked $(call of_tests,olm-images olm-release),-p olm-images)
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(olm_images) \
	    $(addprefix --program ,$(IMAGE_PROGRAMS)) --compression $(compression) --output $(target_dir)/images --revision "$$(git rev-parse HEAD)" \
	    $(foreach platform,$(PLATFORMS),--platform $(platform)=$(call static_dir,$(platform))) \
	    $(if $(VERSION),--version '$(VERSION)') $(if $(PUSH),--push '$(PUSH)') \
	    $(if $(CA_FILE),--ca-file '$(CA_FILE)') $(if $(filter-out 0,$(PLAIN_HTTP)),--plain-http)

# beside the platforms, where kubectl-olm of macOS is: PLUGINS="darwin/arm64=FOLDER darwin/amd64=FOLDER"
.PHONY: release
release: PROFILE = release
release: images ## Put archives, chart, install files and checksums into target/release-files (variables of images; PLUGINS; PUSH: the chart, too)
	@$(release_tools); SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) COMPRESSION=$(compression) RELEASE_PROGRAMS="$(RELEASE_PROGRAMS)" \
	    OLM_RELEASE=$(abspath $(olm_release)) IMAGES=$(target_dir)/images $(if $(PUSH),REGISTRY='$(PUSH)' PUSH='$(PUSH)') \
	    $(if $(CA_FILE),CA_FILE='$(CA_FILE)') $(if $(filter-out 0,$(PLAIN_HTTP)),PLAIN_HTTP=1) $(if $(PLUGIN_URL),PLUGIN_URL='$(PLUGIN_URL)') \
	    hack/release.sh $(target_dir)/release-files $(or $(VERSION),$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)) \
	    $(foreach platform,$(PLATFORMS),$(platform)=$(call static_dir,$(platform))) $(PLUGINS)

.PHONY: test-images
test-images: static ## Run `make images` and `make release`, and start what comes back from a local registry (PROFILE=release: as users get it)
	@$(all_tools); OLM_IMAGES_PROFILE=$(PROFILE) $(CARGO) test $(if $(CI),--locked --workspace,-p olm-integration) --test images -- \
	    --exact images_and_release_of_make_start_programs

# outside of the node, then inside, where there is no network
node_tests = $(CARGO) test $(locked) --workspace --test node -- --nocapture --test-threads=1
.PHONY: test-node
test-node: ## Install our images on a real node, and an operator that runs (root on Linux; REQUIRED=1: fail where it cannot run; IMAGE_PROFILE=release)
	@$(call build,$(everything))
	@hack/node-packages.sh; outcome=0; $(kit) node check || outcome=$$?; [ $$outcome != 2 ] || exit $(if $(REQUIRED),1,0); [ $$outcome = 0 ]; \
	    $(node_tools); $(MAKE) images PROFILE=$(or $(IMAGE_PROFILE),dev); \
	    OLM_NODE_MACHINE=1 $(with_programs) $(node_tests) machine_; \
	    OLM_NODE_IMAGES=$(abspath $(target_dir)/images) CARGO_NET_OFFLINE=true $(kit) node run -- $(node_tests) --skip machine_ --skip rehearsal_

# the release is made and pushed inside of the node, whose registry no other process reaches; its programs are linked before
.PHONY: release-rehearsal
release-rehearsal: PROFILE = release
release-rehearsal: static ## Publish a release to the registry of a real node, install it there from its files alone, and verify its signatures (root on Linux; REQUIRED=1: fail where it cannot run)
	@$(MAKE) kit PROFILE=dev
	@hack/node-packages.sh; outcome=0; $(target_dir)/debug/olm-kit node check || outcome=$$?; [ $$outcome != 2 ] || exit $(if $(REQUIRED),1,0); [ $$outcome = 0 ]; \
	    $(node_tools); $(CARGO) build $(locked) $(everything); \
	    OLM_RELEASE_FILES=$(abspath $(target_dir)/release-files) CARGO_NET_OFFLINE=true $(target_dir)/debug/olm-kit node run -- bash -c \
	    '$(MAKE) release PROFILE=$(PROFILE) PUSH="$$OLM_NODE_REGISTRY/olm" CA_FILE="$$OLM_NODE_CA" && $(node_tests) rehearsal_'

kind_tools = OLM_TOOLS="$$(OLM_TOOLS_ONLY='kubernetes registry pause sample-operator helm kind' hack/tools/build.sh)"; export OLM_TOOLS
.PHONY: test-kind
test-kind: ## Run the tests of test-node on a cluster of kind instead (root and Docker on Linux)
	@$(call build,$(everything))
	@$(kind_tools); $(MAKE) images PROFILE=$(or $(IMAGE_PROFILE),dev); OLM_NODE_IMAGES=$(abspath $(target_dir)/images) \
	    hack/kind.sh $(kit) $(node_tests) --skip machine_ --skip rehearsal_

.PHONY: fuzz
fuzz: ## Fuzz every parser of foreign bytes (SECONDS=60 each; ONLY=regex, JOBS=2, SANITIZER=address: see docs/internals/fuzzing.md)
	@SECONDS_EACH=$(or $(SECONDS),60) ONLY='$(ONLY)' JOBS=$(or $(JOBS),2) SANITIZER=$(SANITIZER) fuzz/run.sh

# what xtask reads: lines `figure:`, and the samples that criterion keeps (of shorter measurements than its own)
bench_results = $(abspath $(target_dir))/bench.txt $(abspath $(target_dir))/criterion
bench_short = --warm-up-time 1 --measurement-time 2

.PHONY: exercises
exercises: ## Apply the exercises of CONTRIBUTING.md to a copy, and leave out each file once (ONLY=condition: one of them)
	@$(call build,-p xtask)
	@$(programs_dir)/xtask exercises $(ONLY)

.PHONY: bench
bench: ## Run the benchmarks; fail if a ratio has grown (WRITE=1: write ratios down; ARGS="-p catalogd": some, unchecked)
	@$(call build,-p xtask)
	$(CARGO) build $(if $(CI),--locked) --release --workspace --bin catalogd --bin operator-controller
	@rm -rf $(bench_results)
	@$(all_tools); OLM_BIN_DIR=$(abspath $(target_dir)/release) \
	    $(CARGO) bench $(if $(CI),--locked) $(or $(ARGS),--workspace) --bench '*' -- $(bench_short) | tee $(firstword $(bench_results))
ifndef ARGS
	@$(programs_dir)/xtask benchmarks $(if $(WRITE),--write) $(bench_results)
endif

# each as typed; all of them run, also after one failed
NIGHTLY = tools lint build\ PROFILE=release test-images\ PROFILE=release test-node\ IMAGE_PROFILE=release release-rehearsal test-apiserver oracle-classic bench-classic \
    test-hard test-hostile test-plan test-completion recordings test-upgrade \
    test-gitops test-oldest soak simulate\ SEEDS=20000 simulate\ SCENARIO=classic\ SEEDS=20000 simulate-without-fixes test-without-fixes fuzz exercises bench scale deny docs spelling workflows acceptance-exact acceptance-classic compare-classic conformance generate demo-down

.PHONY: nightly
nightly: ## Run what does not fit into .ci/run (hours), and name what failed
	@failed=; for target in $(NIGHTLY); do \
	    echo "=== make $$target"; $(MAKE) $$target || failed+="; make $$target"; \
	done; [ -z "$$failed" ] || { echo "FAILED: $${failed#; }"; exit 1; }

.PHONY: clean
clean: ## Stop what runs here and remove what was built (not the tools, which other checkouts share)
	@if [ -x $(kit) ]; then $(kit) demo-down; $(kit) cluster down; fi
	$(CARGO) clean
	rm -rf .run
