package devenv

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is a user of this machine, by number.
type account struct{ uid, gid uint32 }

// unprivileged returns the user that servers which refuse root run as: nil, this process' own, unless that is root.
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

// reaches reports whether the account may enter the folder and all those above it. Only root has to ask.
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

// tempFolder makes a new folder that belongs to the account, below a folder that it can reach. What is volatile lies in memory, if there
// is room.
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

// own gives a file, or a folder with all that is in it, to the account.
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
