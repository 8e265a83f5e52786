include_guard()

set(MSTAR_FLAGS_portable "")
set(MSTAR_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(MSTAR_FLAGS_avx512 ${MSTAR_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
                       -mprefer-vector-width=512)
set(MSTAR_FLAGS_avx512_bf16 ${MSTAR_FLAGS_avx512} -mavx512bf16 -mavx512vnni)
set(MSTAR_FLAGS_amx ${MSTAR_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(MSTAR_X86 ON)
else()
  set(MSTAR_X86 OFF)
endif()

# Compiles each of the sources for one instruction set, in the namespace MSTAR_ISA_NAMESPACE, and
# adds the objects to the library `target`. Such a file includes no header with inline functions
# that others use too (most of std::): the linker keeps one copy of those, and it could be the one
# with AVX-512 instructions. tools/check_isa_objects.sh fails when an object defines such a symbol.
function(mstar_isa_objects target set)
  set(objects ${target}_${set})
  add_library(${objects} OBJECT ${ARGN})
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${objects} PRIVATE MSTAR_ISA_NAMESPACE=${set}
                                                MSTAR_ISA_IS_${set}=1)
  # Kernels are optimized in every build type: unoptimized ones would make the tests slow.
  target_compile_options(${objects} PRIVATE -O3 -fno-math-errno -fno-trapping-math
                                            ${MSTAR_FLAGS_${set}})
  # The thread sanitizer leaves kernels alone: tasks of an op share nothing but atomic counters, and
  # instrumented they would make every test crawl.
  if(MSTAR_SANITIZE MATCHES "thread")
    target_link_libraries(${objects} PRIVATE mstar_warnings)
  else()
    target_link_libraries(${objects} PRIVATE mstar_options)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()

# Compiles the sources once for each of portable, avx2, avx512 and avx512_bf16.
function(mstar_isa_sources target)
  set(sets portable)
  if(MSTAR_X86)
    list(APPEND sets avx2 avx512 avx512_bf16)
  endif()
  foreach(set IN LISTS sets)
    mstar_isa_objects(${target} ${set} ${ARGN})
  endforeach()
endfunction()

# Compiles the sources with the tile instructions: the few files that Isa::kAmx has of its own.
function(mstar_amx_sources target)
  if(MSTAR_X86)
    mstar_isa_objects(${target} amx ${ARGN})
  endif()
endfunction()
