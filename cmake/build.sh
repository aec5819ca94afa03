# Sourced by bench/run, test/run and .ci/run: one way to get from a checkout to a
# build. Expects the working directory to be the top of the checkout.

# configure_and_build <preset> [<target>...]: configures build/<preset> where that
# was not done before, and builds the targets, or everything.
configure_and_build() {
  local preset=$1 target
  shift
  # Tests share a precompiled header, which ccache compares by content only when
  # it is told to.
  export CCACHE_SLOPPINESS=pch_defines,time_macros
  # Checkouts in different folders share what is cached.
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  if [ ! -f "build/$preset/build.ninja" ]; then
    local launcher=()
    if command -v ccache >/dev/null; then
      launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    fi
    cmake --preset "$preset" "${launcher[@]}" >&2
  fi
  local targets=()
  for target in "$@"; do
    targets+=(--target "$target")
  done
  cmake --build --preset "$preset" "${targets[@]}" >&2
}
