package localpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/pgerr"
)

const (
	// closeTimeout bounds the removal of the database. The server itself waits up to 5 s for its last sessions.
	closeTimeout = time.Minute

	objectInUse           = "55006"
	insufficientPrivilege = "42501"
)

// DB is an empty database for one run of a program or its tests.
type DB struct {
	// URL is its connection string, for [database/sql] or for ONCEBOX_DATABASE_URL.
	URL string

	server *devenv.PostgresServer
	name   string
	closed func() error
}

// Start finds or starts a PostgreSQL server, and makes a database on it. Call [DB.Close] at the end. Start gives up
// when ctx is done, when a download takes more than 15 minutes, or when the server takes more than 10 minutes to start.
//
// An error names what is missing, and the step that provides it. If it is about a server that was started here, it ends
// with the last lines of the server's log.
func Start(ctx context.Context, opts ...Option) (*DB, error) {
	o := &options{devenv.Options{PostgresVariables: []string{"ONCEBOX_DATABASE_URL", "DATABASE_URL"}}}
	for _, opt := range opts {
		opt(o)
	}
	server, err := devenv.Postgres(ctx, &o.Options)
	if err != nil {
		return nil, fmt.Errorf("localpg: Start: %w", err)
	}
	db := &DB{server: server, name: "oncebox_local_" + strings.ToLower(rand.Text()[:16])}
	db.closed = sync.OnceValue(db.close)
	if db.URL, err = inDatabase(server.URL, db.name); err == nil {
		err = db.create(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("localpg: Start: %w", err), server.Stop())
	}
	return db, nil
}

// create makes the database as a copy of template0, to which no session can connect: with template1, a session there
// would make the copy fail.
func (db *DB) create(ctx context.Context) error {
	err := execute(ctx, db.server.URL, "CREATE DATABASE "+db.name+" TEMPLATE template0")
	if pgerr.Code(err) == insufficientPrivilege {
		err = fmt.Errorf("%w: run ALTER ROLE ... CREATEDB for the role of this server's URL, or unset ONCEBOX_DATABASE_URL and DATABASE_URL "+
			"to have a server started here", err)
	}
	return err
}

// Close removes the database with everything in it, ends its sessions, and stops the server if Start has started it. A
// second call returns the result of the first.
func (db *DB) Close() error { return db.closed() }

func (db *DB) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for {
		err := execute(ctx, db.server.URL, "DROP DATABASE IF EXISTS "+db.name+" WITH (FORCE)")
		if pgerr.Code(err) == objectInUse && ctx.Err() == nil {
			continue // the server gives up after 5 s of waiting for the sessions that it has ended
		}
		if err != nil {
			err = fmt.Errorf("localpg: Close: %w", err)
		}
		return errors.Join(err, db.server.Stop())
	}
}

func execute(ctx context.Context, server, statement string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// inDatabase replaces the database in a connection string, in either form of libpq: a URL, or keywords with values
// (PostgreSQL, chapter libpq, "Connection Strings").
func inDatabase(server, name string) (string, error) {
	if !strings.HasPrefix(server, "postgres://") && !strings.HasPrefix(server, "postgresql://") {
		return server + " dbname=" + name, nil // of several values libpq takes the last
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("the server's URL cannot be read") // the original error would show the password
	}
	query := u.Query()
	query.Del("dbname") // it would count more than the path
	query.Del("database")
	u.Path, u.RawQuery = "/"+name, query.Encode()
	return u.String(), nil
}
