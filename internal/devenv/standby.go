package devenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// StandbyName is the application_name of a standby, by which synchronous_standby_names refers to it.
const StandbyName = "standby"

// Standby makes a standby of a server that was started here. It stops the server cleanly, copies its files and starts
// both. The caller stops the standby.
func (p *PostgresServer) Standby(ctx context.Context) (*PostgresServer, error) {
	if p.dog == nil {
		return nil, ErrNotStartedHere
	}
	s := &PostgresServer{server: server{name: p.name, as: p.as, timeout: p.timeout}, settings: p.settings, programs: p.programs}
	if err := s.prepare("QUIT"); err != nil {
		return nil, err
	}
	if err := s.follow(ctx, p); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (p *PostgresServer) follow(ctx context.Context, primary *PostgresServer) error {
	if err := primary.End(os.Interrupt); err != nil {
		return err
	}
	port, err := p.takePort()
	if err != nil {
		return err
	}
	p.port, p.data = port, filepath.Join(p.folder, "data")
	at, err := url.Parse(primary.URL)
	if err != nil {
		return fmt.Errorf("devenv: the primary's URL: %w", err)
	}
	password, _ := at.User.Password()
	settings := fmt.Sprintf("primary_conninfo = 'host=127.0.0.1 port=%d user=%s password=%s application_name=%s'\n",
		primary.port, at.User.Username(), password, StandbyName)
	err = errors.Join(
		os.CopyFS(p.data, os.DirFS(primary.data)),
		os.Chmod(p.data, 0o700), // PostgreSQL refuses a folder that other users can read
		os.WriteFile(filepath.Join(p.data, "standby.signal"), nil, 0o600),
		os.WriteFile(filepath.Join(p.data, "postgresql.auto.conf"), []byte(settings), 0o600),
		p.as.own(p.data))
	if err != nil {
		return fmt.Errorf("devenv: copy the primary: %w", err)
	}
	p.listen(at.User)
	return errors.Join(primary.start(ctx), p.start(ctx))
}
