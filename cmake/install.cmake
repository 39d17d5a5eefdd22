# cmake --install BUILD [--prefix P]: programs, the demo model, manual pages, completions, the
# systemd unit, its settings, the licence. cpack in the build folder makes a Debian package of it;
# cpack --config CPackCpuConfig.cmake makes that of hosts without a GPU, also of a build with CUDA.
include(GNUInstallDirs)

# quire-server finds quire-worker beside itself and the demo model at ../share.
install(TARGETS quire-server quire quire-load RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS quire-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT worker)
if(QUIRE_HAS_CUDA)
  # cuBLASLt and NCCL are of the CUDA toolkit, which is no Debian package.
  set_target_properties(quire-worker PROPERTIES INSTALL_RPATH /usr/local/cuda/lib64)
  install(TARGETS quire-worker-cpu
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cpu-worker EXCLUDE_FROM_ALL)
endif()
install(DIRECTORY models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/quire/models)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/quire RENAME copyright)
install(FILES deploy/config.example DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/quire)
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
foreach(program quire-server quire quire-load)
  set(from ${CMAKE_BINARY_DIR}/completions)
  install(FILES ${from}/bash/${program}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${from}/zsh/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${from}/fish/${program}.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endforeach()
install(SCRIPT cmake/install_service.cmake)
# Only the programs above, not all that the build can make.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Quire authors <quire@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM inference server over gRPC")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Serves Hugging Face checkpoints of the llama shape. quire-server is the server, quire its
command-line client, quire-load the load client. The systemd service quire.service is installed
and not started.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONFLICTS quire-cuda)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_SOURCE_DIR}/deploy/debian/postinst
    ${CMAKE_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
set(CPACK_STRIP_FILES ON)
# The paths in the unit are those of the installed system, so the prefix is known at install time.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/package)
set(cpu_worker worker)
if(QUIRE_HAS_CUDA)
  set(cpu_worker cpu-worker)
  set(CPACK_PACKAGE_NAME quire-cuda)
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS quire)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES quire)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CUDAToolkit_LIBRARY_DIR})
endif()
include(CPack)
file(WRITE ${CMAKE_BINARY_DIR}/CPackCpuConfig.cmake "\
include(\${CMAKE_CURRENT_LIST_DIR}/CPackConfig.cmake)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_DEBIAN_PACKAGE_CONFLICTS quire-cuda)
unset(CPACK_DEBIAN_PACKAGE_PROVIDES)
set(CPACK_INSTALL_CMAKE_PROJECTS
    \"${CMAKE_BINARY_DIR};quire;Unspecified;/;${CMAKE_BINARY_DIR};quire;${cpu_worker};/\")
")
