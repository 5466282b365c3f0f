package devenv

import "syscall"

const (
	// memoryFolder is the file system in memory that Linux has. Tests make and drop thousands of tables, each of several files: on a disk's
	// file system that took a tenth of the CPU time of all tests.
	memoryFolder = "/dev/shm"
	// memoryRoom is what must be free in it, in bytes. Tests write up to 2 GB.
	memoryRoom = 8 << 30
	// noExec is ST_NOEXEC of statfs(2). PostgreSQL's programs may be copied to the folder.
	noExec = 8
)

func roomInMemory() bool {
	var s syscall.Statfs_t
	return syscall.Statfs(memoryFolder, &s) == nil && s.Flags&noExec == 0 && s.Bavail*uint64(s.Bsize) >= memoryRoom
}
