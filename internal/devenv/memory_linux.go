package devenv

import "syscall"

const (
	// memoryFolder is a file system in memory. Tests make and drop thousands of tables, each with several files: on a
	// disk's file system that took a tenth of the CPU time of all tests.
	memoryFolder = "/dev/shm"
	// memoryRoom is how many bytes must be free there. Tests write up to 2 GB.
	memoryRoom = 8 << 30
	// noExec is the flag ST_NOEXEC of statfs(2). The folder must permit execution, because PostgreSQL's
	// programs may be copied there.
	noExec = 8
)

func roomInMemory() bool {
	var s syscall.Statfs_t
	return syscall.Statfs(memoryFolder, &s) == nil && s.Flags&noExec == 0 && s.Bavail*uint64(s.Bsize) >= memoryRoom
}
