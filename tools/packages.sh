# Sourced by ./run and ./test: installs what the build needs on Debian and Ubuntu, as root or through a
# sudo that asks nothing; elsewhere says exactly what to install. Writes to stderr only.

orrery_packages=(cmake ninja-build g++ clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14 ccache libcli11-dev libyaml-cpp-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev
  libexpat1-dev libsimdjson-dev libsqlite3-dev zlib1g-dev libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev pybind11-dev python3
  python3-dev python3-venv)

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null; then
      echo "This is no Debian or Ubuntu. Please install the counterparts of these packages:" >&2
      echo "  ${orrery_packages[*]}" >&2
      return 2
    fi
    return 0
  fi
  local missing=() package
  for package in "${orrery_packages[@]}"; do
    if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
      missing+=("$package")
    fi
  done
  if ((${#missing[@]} == 0)); then return 0; fi
  local as_root=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      echo "Some packages are missing. As root, please run:" >&2
      echo "  apt-get install -y --no-install-recommends ${missing[*]}" >&2
      return 2
    fi
  fi
  echo "installing ${missing[*]}" >&2
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q
    --no-install-recommends "${missing[@]}")
  if ! "${install[@]}" >&2; then
    "${as_root[@]}" apt-get update -q >&2 && "${install[@]}" >&2
  fi
}
