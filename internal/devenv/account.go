package devenv

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is a user of this machine, by its ids.
type account struct{ uid, gid uint32 }

// unprivileged returns the user for programs that refuse to run as root, such as PostgreSQL. nil stands for this
// process's own user, unless that is root.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, fmt.Errorf("devenv: PostgreSQL refuses to run as root, and there is no user nobody to run it as: %w", err)
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("devenv: user id of nobody: %w", err)
	}
	gid, err := strconv.ParseUint(nobody.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("devenv: group id of nobody: %w", err)
	}
	return &account{uid: uint32(uid), gid: uint32(gid)}, nil
}

// reaches reports whether the user may enter the folder and all folders above it. Only root has to ask.
func (a *account) reaches(folder string) bool {
	if a == nil {
		return true
	}
	for dir := filepath.Clean(folder); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// tempFolder makes a new folder that belongs to the user, inside a folder that the user can reach. A volatile folder is
// in memory if there is room.
func (a *account) tempFolder(name string, volatile bool) (string, error) {
	parent := os.TempDir()
	if volatile && roomInMemory() {
		parent = memoryFolder
	}
	if !a.reaches(parent) {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "oncebox-"+name+"-")
	if err != nil {
		return "", fmt.Errorf("devenv: make the server's folder: %w", err)
	}
	if err := a.own(dir); err != nil {
		os.Remove(dir)
		return "", err
	}
	return dir, nil
}

// own makes the user the owner of a file, or of a folder with everything in it.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(a.uid), int(a.gid))
	})
	if err != nil {
		return fmt.Errorf("devenv: hand files to the server's user: %w", err)
	}
	return nil
}
