# Part of cmake --install: the systemd unit with the paths of this installation, and its settings,
# which are left alone when they exist. With the prefix /usr, settings lie in /etc.
set(deploy ${CMAKE_CURRENT_LIST_DIR}/../deploy/systemd)
set(BINDIR ${CMAKE_INSTALL_PREFIX}/bin)
set(SYSCONFDIR ${CMAKE_INSTALL_PREFIX}/etc)
if(CMAKE_INSTALL_PREFIX STREQUAL /usr)
  set(SYSCONFDIR /etc)
endif()
set(root $ENV{DESTDIR})
configure_file(${deploy}/quire.service.in
               ${root}${CMAKE_INSTALL_PREFIX}/lib/systemd/system/quire.service
               @ONLY FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
message(STATUS "Installing: ${root}${CMAKE_INSTALL_PREFIX}/lib/systemd/system/quire.service")
if(NOT EXISTS ${root}${SYSCONFDIR}/quire/server.json)
  file(INSTALL ${deploy}/server.json DESTINATION ${SYSCONFDIR}/quire)
endif()
