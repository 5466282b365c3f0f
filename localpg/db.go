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

// DB is an empty database of this run.
type DB struct {
	// URL is its connection string, for example of [database/sql] or ONCEBOX_DATABASE_URL.
	URL string

	server *devenv.PostgresServer
	name   string
	closed func() error
}

// Start finds or starts a server and makes a database on it. The caller calls [DB.Close]. Start gives up when ctx is done, when a download takes
// more than 15 minutes, or the start of a server more than 10.
//
// Errors name what is missing and the step that provides it. An error about a server that was started here ends with the last lines of
// that server's log.
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

// create copies template0, to which no session can connect. A session in template1 would make the copy fail.
func (db *DB) create(ctx context.Context) error {
	err := execute(ctx, db.server.URL, "CREATE DATABASE "+db.name+" TEMPLATE template0")
	if pgerr.Code(err) == insufficientPrivilege {
		err = fmt.Errorf("%w: run ALTER ROLE ... CREATEDB for the role of this server's URL, or unset ONCEBOX_DATABASE_URL and DATABASE_URL "+
			"to have a server started here", err)
	}
	return err
}

// Close removes the database with all that is in it, ends its sessions, and stops the server if Start started it. A second call
// returns what the first one did.
func (db *DB) Close() error { return db.closed() }

func (db *DB) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for {
		err := execute(ctx, db.server.URL, "DROP DATABASE IF EXISTS "+db.name+" WITH (FORCE)")
		if pgerr.Code(err) == objectInUse && ctx.Err() == nil {
			continue // the server has waited for 5 s for the sessions that it ended
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

// inDatabase returns the connection string with another database in it, in either of libpq's forms: a URL or keywords with values
// (PostgreSQL, chapter libpq, "Connection Strings").
func inDatabase(server, name string) (string, error) {
	if !strings.HasPrefix(server, "postgres://") && !strings.HasPrefix(server, "postgresql://") {
		return server + " dbname=" + name, nil // the last value counts
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("the server's URL cannot be read") // the cause repeats the password
	}
	query := u.Query()
	query.Del("dbname") // it would count more than the path
	query.Del("database")
	u.Path, u.RawQuery = "/"+name, query.Encode()
	return u.String(), nil
}
