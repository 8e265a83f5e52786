# Warnings, sanitizers and the linker, for every target of ours.
include_guard()

add_library(mstar_warnings INTERFACE)
target_compile_options(
  mstar_warnings
  INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
            -Wno-missing-field-initializers # designated initializers leave fields out on purpose
            $<$<BOOL:${MSTAR_WERROR}>:-Werror>
            -ffp-contract=off) # kernels fuse multiply-adds where they say so, nowhere else
if(MSTAR_DCHECK)
  target_compile_definitions(mstar_warnings INTERFACE MSTAR_DCHECK_ENABLED=1)
endif()

add_library(mstar_options INTERFACE)
target_link_libraries(mstar_options INTERFACE mstar_warnings)
if(MSTAR_SANITIZE)
  # -O1: half the time to compile, and the reports name more frames; there GCC takes a replaced
  # operator delete for a mismatch.
  target_compile_options(mstar_options INTERFACE -O1 -Wno-mismatched-new-delete
                                                 -fsanitize=${MSTAR_SANITIZE}
                                                 -fno-omit-frame-pointer)
  target_link_options(mstar_options INTERFACE -fsanitize=${MSTAR_SANITIZE})
  if(MSTAR_SANITIZE MATCHES "undefined")
    target_compile_options(mstar_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
  if(MSTAR_SANITIZE MATCHES "thread")
    target_compile_definitions(mstar_options INTERFACE MSTAR_TSAN=1)
  endif()
endif()

if(MSTAR_FUZZ)
  # Every library reports its coverage: without that a fuzzer gropes in the dark.
  target_compile_options(mstar_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# The default linker, on purpose: of Debian's faster ones, mold 1.10 made a test program whose RELRO
# segment reached past its pages (it could not start), and lld 14 programs in which exceptions found
# no handler.
