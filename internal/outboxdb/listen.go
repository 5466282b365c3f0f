package outboxdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// ErrCannotListen means that this store receives no notifications of commits in other processes, so that only polling
// finds their rows: Config.Pooler or Config.PollOnly is set, or the driver is not pgx.
var ErrCannotListen = errors.New("outbox: this store cannot listen")

const (
	// listenProbe is the silence after which the connection is probed: a connection that a firewall has forgotten
	// stays silent for ever.
	listenProbe = 30 * time.Second
	// listenTimeout bounds connecting, a probe, and UNLISTEN.
	listenTimeout = 10 * time.Second
)

const selectChannel = `SELECT ` + channelOf + ` FROM {schema}.oncebox_settings`

// Listen calls wake whenever another store of the same tables may have committed rows, with their lanes. It calls
// freed whenever lanes were handed back, or a tenant was paused or resumed. It calls both once at the start, for
// events before it. It returns nil when ctx is done, an error when the connection is lost, and [ErrCannotListen] if
// this store can never listen.
//
// It opens a connection of its own, configured as those of the pool are and not counted by it, so that a small pool has
// no fewer connections for its users. Nothing is lost by a notification that does not come: rows are found by polling.
func (h *Handle) Listen(ctx context.Context, wake func(LaneSet), freed func()) error {
	if h.Pooler || h.PollOnly {
		return ErrCannotListen
	}
	conn, err := h.listener(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	// Notifications of commits before the LISTEN did not reach this connection.
	wake(AllLanes)
	freed()
	for {
		payload, err := h.awaitNotification(ctx, conn)
		by, lanes, _ := strings.Cut(payload, " ")
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("outbox: listen: %w", err)
		case by == LanesFreed:
			freed()
		case by != h.id: // the projectors of this store have been woken by Wake
			wake(parseLaneSet(lanes))
		}
	}
}

// listener returns a connection that listens. The channel is asked for through the pool: only its connections are sure
// to have the search_path.
func (h *Handle) listener(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	var channel string
	if err := h.Run.QueryRow(ctx, h.DB, selectChannel, nil, &channel); err != nil {
		return nil, fmt.Errorf("outbox: listen: %w", pgerr.Explain(err))
	}
	var cfg *pgx.ConnConfig
	ok, err := pgsql.Native(ctx, h.DB, func(c *pgx.Conn) error {
		cfg = pgsql.ConfigOf(c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: listen: %w", err)
	}
	if !ok {
		return nil, ErrCannotListen
	}
	cfg.OnNotification = nil // a handler of the user's would take the notifications away
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("outbox: listen: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("outbox: listen: %w", err)
	}
	return conn, nil
}

// awaitNotification returns the payload of the next notification. It returns "" if none came for a while and the
// connection is alive: the caller then takes it for a notification of all lanes, and one more poll does no harm.
func (h *Handle) awaitNotification(ctx context.Context, conn *pgx.Conn) (payload string, err error) {
	waiting, cancel := context.WithTimeout(ctx, h.ProbeAfter)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return n.Payload, nil
	case waiting.Err() == nil || ctx.Err() != nil || conn.IsClosed():
		return "", err
	}
	probing, cancel := context.WithTimeout(ctx, h.ProbeTimeout)
	defer cancel()
	return "", conn.Ping(probing)
}
