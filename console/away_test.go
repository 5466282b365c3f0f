package console_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// gone is a database that cannot be reached.
type gone struct {
	fails error
	mu    sync.Mutex
	ends  []time.Time // until when each connection was waited for; zero: for ever
}

func (g *gone) Connect(ctx context.Context) (driver.Conn, error) {
	end, _ := ctx.Deadline()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends = append(g.ends, end)
	return nil, g.fails
}

// taken returns the ends since the last call. A read that several pages share may go on after the answer, so it can add one at any time.
func (g *gone) taken() (ends []time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ends, g.ends = g.ends, nil
	return ends
}

func (g *gone) Driver() driver.Driver { return nil }

// A database that is away is called so, and the pages that are looked at first do not wait for it for ever.
func TestDatabaseThatIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		fails  error
		status int
		says   string
	}{
		"refused":        {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, http.StatusServiceUnavailable, "The database does not answer"},
		"cut off":        {io.ErrUnexpectedEOF, http.StatusServiceUnavailable, "The database does not answer"},
		"silent":         {context.DeadlineExceeded, http.StatusServiceUnavailable, "The database does not answer"},
		"something else": {errors.New("no such thing"), http.StatusInternalServerError, "This could not be answered"},
	} {
		t.Run(name, func(t *testing.T) {
			away := &gone{fails: test.fails}
			db := bun.NewDB(sql.OpenDB(away), pgdialect.New())
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			s := &shop{t: t, Kit: &oncetest.Kit{DB: db}}
			b := s.serve(&console.Config{
				Outbox: outbox.NewStore(db, nil), Inbox: inbox.New(uow.New(db, nil), nil), Idempotency: idempotency.NewStore(nil),
				Logger: slog.New(slog.DiscardHandler),
			})
			for _, page := range []string{"", "stuck"} {
				away.taken()
				a := b.get(page)
				require.Equal(t, test.status, a.status, a.text())
				require.Contains(t, a.text(), test.says)
				require.Contains(t, a.text(), "The log of this process says why, under the id ")
				ends := away.taken()
				require.NotEmpty(t, ends)
				for _, end := range ends {
					require.False(t, end.IsZero(), "the page waits for ever")
				}
			}
			require.Contains(t, b.get("keys").text(), test.says)
		})
	}
}
