package devenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// Programs returns the folder with initdb, postgres and the other programs of this PostgreSQL. It is "" if
// the server was found running.
func (p *PostgresServer) Programs() string { return p.programs }

// CopyFiles copies the files of a server that was started here to a new folder. The copy is that of a clean shutdown if
// the server was ended with os.Interrupt before. If its processes are stopped, it is like a snapshot of the disk.
func (p *PostgresServer) CopyFiles(to string) error {
	if p.dog == nil {
		return ErrNotStartedHere
	}
	if err := os.CopyFS(to, os.DirFS(p.data)); err != nil {
		return fmt.Errorf("devenv: copy the files of %s: %w", p.name, err)
	}
	return nil
}

// Clone starts another server with the same user, on files that fill puts into a new folder. The caller stops it.
func (p *PostgresServer) Clone(ctx context.Context, fill func(to string) error) (*PostgresServer, error) {
	if p.dog == nil {
		return nil, ErrNotStartedHere
	}
	c := &PostgresServer{server: server{name: p.name, as: p.as, timeout: p.timeout}, settings: p.settings, programs: p.programs}
	if err := c.prepare("QUIT"); err != nil {
		return nil, err
	}
	if err := c.startOn(ctx, p.URL, fill); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (p *PostgresServer) startOn(ctx context.Context, like string, fill func(to string) error) error {
	port, err := p.takePort()
	if err != nil {
		return err
	}
	p.port, p.data = port, filepath.Join(p.folder, "data")
	at, err := url.Parse(like)
	if err != nil {
		return fmt.Errorf("devenv: the URL of a server: %w", err)
	}
	if err := errors.Join(fill(p.data), p.settle()); err != nil {
		return err
	}
	p.listen(at.User)
	return p.start(ctx)
}

// settle makes copied files look like those of a server that does not run.
func (p *PostgresServer) settle() error {
	err := os.Remove(filepath.Join(p.data, "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.Chmod(p.data, 0o700), p.as.own(p.data)) // PostgreSQL refuses a folder that other users can read
}

// TakeFiles replaces the server's files by those of another server. Both servers must not run, and the
// other one has no files afterwards.
func (p *PostgresServer) TakeFiles(other *PostgresServer) error {
	if p.dog == nil || other.dog == nil {
		return ErrNotStartedHere
	}
	if err := errors.Join(os.RemoveAll(p.data), os.CopyFS(p.data, os.DirFS(other.data)), os.RemoveAll(other.data)); err != nil {
		return fmt.Errorf("devenv: put files in the place of those of %s: %w", p.name, err)
	}
	return p.settle()
}
