package uow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/quietlog"
)

const (
	// starvedAfter is how long a unit waits for a connection before that is logged.
	starvedAfter = 10 * time.Second
	// starvedInterval is how often that is logged at most, however many units wait.
	starvedInterval = time.Minute

	starvedAdvice = "Code that uses the pool within a unit of work takes a second one, and may wait for ever for others that do so too: " +
		"use the unit there (uow.FromContext), or allow more (SetMaxOpenConns)"
)

// pool takes connections for units.
//
// All connections in use is usually a mistake: code takes a second connection while its unit has one, and waits for units that wait in the same way.
// A unit whose context has no deadline would wait for ever, and nobody would know why. So the error says it, and so does the log.
type pool struct {
	db  *bun.DB
	log *slog.Logger
	// outdated counts the errors of statements that were prepared too long ago. Once there was one, connections drop the statements that they prepared
	// before, see pgsql.Fresh.
	outdated atomic.Int64

	starvedAfter time.Duration
	mu           sync.Mutex
	logged       time.Time // when the log last said that units wait
}

// take returns a connection. It waits for one as long as ctx lasts. database/sql checks only connections that have been idle for a while; with ping,
// every connection is checked.
func (p *pool) take(ctx context.Context, ping bool) (bun.Conn, error) {
	// A unit that loses the last connection to another one in this moment waits without a log line. The next unit has one.
	if _, all := p.allInUse(); all {
		defer time.AfterFunc(p.starvedAfter, func() { p.warn(ctx) }).Stop()
	}
	conn, err := p.db.Conn(ctx)
	if outdated := p.outdated.Load(); ping || outdated > 0 {
		conn, err = p.checked(ctx, conn, err, ping, outdated)
	}
	return conn, p.exhausted(err)
}

// checked closes connections that do not answer, or cannot forget their statements, and takes others in their place.
func (p *pool) checked(ctx context.Context, conn bun.Conn, err error, ping bool, outdated int64) (bun.Conn, error) {
	good := func() bool {
		return (!ping || conn.PingContext(ctx) == nil) && (outdated == 0 || pgsql.Fresh(ctx, conn, outdated))
	}
	// At most as many connections are tried as are open, so a server that is down does not keep this loop going.
	for left := p.db.Stats().OpenConnections; left > 0 && err == nil && !good(); left-- {
		_ = conn.Close()
		conn, err = p.db.Conn(ctx)
	}
	return conn, err
}

// exhausted adds to the error of a wait that all connections are in use, if they are.
func (p *pool) exhausted(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	most, all := p.allInUse()
	if !all {
		return err
	}
	return fmt.Errorf("%w: all %d connections of the pool are in use. %s", err, most, starvedAdvice)
}

// warn logs that a unit waits for a connection, if all of them are in use.
func (p *pool) warn(ctx context.Context) {
	if most, all := p.allInUse(); all && p.due(time.Now()) {
		ctx := quietlog.Away(ctx, quietlog.Database)
		p.log.WarnContext(ctx, "oncebox: a unit of work waits for a connection to the database, and all of the pool are in use. "+starvedAdvice,
			"connections", most, "waited", p.starvedAfter)
	}
}

// due reports whether the wait of a unit is to be logged now, and notes that it was.
func (p *pool) due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.logged.IsZero() && now.Sub(p.logged) < starvedInterval {
		return false
	}
	p.logged = now
	return true
}

// allInUse returns how many connections the pool may have, and whether all of them are in use.
func (p *pool) allInUse() (most int, all bool) {
	s := p.db.Stats()
	return s.MaxOpenConnections, s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}
