//go:build unix && nightly

package endurance

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/telemetry"
)

// restoresVariable is how often a database is restored in each way. Default: 20.
const restoresVariable = "ENDURANCE_RESTORES"

// The commands of docs/restore.md.
const (
	dumpShop    = `pg_dump -Fc -f shop.dump shop`
	restoreShop = `createdb shop_new && pg_restore -d shop_new shop.dump`
	copyShop    = `createdb -T shop shop_new`
	closeShop   = `psql -d postgres -c "ALTER DATABASE shop ALLOW_CONNECTIONS false"` +
		` -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'shop'"`
	reopenShop = `psql -d postgres -c "ALTER DATABASE shop ALLOW_CONNECTIONS true"`
	swapShop   = `psql -d postgres -c "ALTER DATABASE shop RENAME TO shop_old" -c "ALTER DATABASE shop_new RENAME TO shop"`
	forgetShop = `dropdb shop_old`
	backUp     = `pg_basebackup -D backup -c fast`
)

// The commands of docs/restore.md are the ones that are run here.
func TestPageOnRestoresHasTheCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/restore.md")
	require.NoError(t, err)
	for _, command := range []string{dumpShop, restoreShop, copyShop, closeShop, reopenShop, swapShop, forgetShop, backUp} {
		require.Contains(t, string(page), command)
	}

	_, query, found := strings.Cut(string(page), "```sql\n")
	require.True(t, found)
	query, _, _ = strings.Cut(query, "```")
	query = strings.ReplaceAll(query, "oncebox.", "") // here the tables are in the schema of the test
	db := pgtest.Migrated(t)
	_, err = db.Exec(`CREATE TABLE kept AS SELECT gen_random_uuid() AS id FROM generate_series(1, 2);
		INSERT INTO inbox (message_key, consumer, tenant_id, source) SELECT id, 'billing', 'default', 'shop' FROM kept
		UNION ALL SELECT gen_random_uuid(), 'billing', 'default', 'shop'`)
	require.NoError(t, err)
	rows, err := db.Query(strings.Replace(query, "'2026-11-26 12:00'", "now() - interval '1 hour'", 1))
	require.NoError(t, err)
	defer rows.Close()
	gone := 0
	for rows.Next() {
		gone++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 1, gone)
}

// A database is restored again and again, in five ways, while events are committed and three projectors go on. The events that it has afterwards are
// published, in the order of their keys. Before the projectors connect again, an import moves the sequence beyond its number before the restore: then
// only the mark of the server's incarnation shows that this is another past.
func TestDatabaseIsRestoredUnderProjectors(t *testing.T) {
	t.Parallel()
	for name, save := range map[string]func(e *estate) (restore func()){
		"dump": func(e *estate) func() {
			e.sh(dumpShop)
			return func() {
				e.sh(restoreShop)
				e.swap()
			}
		},
		"template": func(e *estate) func() {
			e.sh(closeShop)
			e.sh(copyShop)
			e.sh(reopenShop)
			return e.swap
		},
		"cold copy": func(e *estate) func() {
			return e.replace(e.clone(func(to string) error {
				defer func() { require.NoError(e.t, e.server.Restart(e.t.Context())) }()
				require.NoError(e.t, e.server.End(os.Interrupt))
				return e.server.CopyFiles(to)
			}))
		},
		"base backup": func(e *estate) func() {
			return e.replace(e.clone(func(to string) error {
				e.sh(backUp)
				return os.Rename(filepath.Join(e.folder, "backup"), to)
			}))
		},
		"promoted standby": func(e *estate) func() {
			server, err := e.server.PostgresServer.Standby(e.t.Context())
			require.NoError(e.t, err)
			standby := &pgtest.Own{PostgresServer: server}
			standby.Promote(e.t)
			return e.replace(standby)
		},
	} {
		t.Run(name, func(t *testing.T) { testRestores(t, name, save) })
	}
}

func testRestores(t *testing.T, name string, save func(e *estate) func()) {
	rounds := 20
	if text := os.Getenv(restoresVariable); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	e := newEstate(t)
	for range 3 {
		e.relay()
	}
	total := restored{}
	for range rounds {
		e.moreEvents(150)
		restore := save(e)
		e.moreEvents(450)
		restore()
		e.moreEvents(150)
		e.drain()
		total.add(e.judge())
	}
	t.Logf("restore way=%q rounds=%d events=%d unpublished=%d disorder=%d copies=%d gone=%d",
		name, rounds, total.events, total.unpublished, total.disorder, total.copies, total.gone)
	require.Zero(t, total.unpublished)
	require.Zero(t, total.disorder)
}

// restored is what came of a database that was restored.
type restored struct {
	events      int // that it has
	unpublished int // of them
	disorder    int // of them, published after a later one of their key
	copies      int // of them
	gone        int // events that were published and that it has no more
}

func (r *restored) add(o restored) {
	r.unpublished, r.disorder = r.unpublished+o.unpublished, r.disorder+o.disorder
	r.events, r.copies, r.gone = o.events, o.copies, o.gone
}

// estate is a server with the database shop, its writers, its projectors and what they have published.
type estate struct {
	t      *testing.T
	server *pgtest.Own
	folder string // of the programs
	db     *pgtest.DB
	tape   tape
	done   atomic.Int64 // events that were committed
	gate   sync.RWMutex // held by writers
	faults map[string]bool
}

// tape is a broker that takes everything.
type tape struct {
	mu  sync.Mutex
	ids []string
}

// Publish takes the messages in order.
func (p *tape) Publish(_ context.Context, msgs []event.Envelope) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range msgs {
		p.ids = append(p.ids, msgs[i].ID)
	}
	return nil
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{t: t, server: pgtest.Start(t, nil), folder: t.TempDir(), faults: map[string]bool{}}
	e.sh("createdb shop")
	e.db = pgtest.MigratedAt(t, e.shop())
	e.db.SetMaxIdleConns(-1) // none is left over from before
	db, store := e.connect()
	writing, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for n := range 4 {
		w := &relayWriter{db: db, store: store, name: fmt.Sprintf("w%d", n), sure: map[effect]bool{}, next: map[string]int{}, done: &e.done}
		group.Go(func() {
			for writing.Err() == nil {
				before := e.done.Load()
				e.gate.RLock()
				w.write(context.WithoutCancel(writing))
				e.gate.RUnlock()
				if e.done.Load() == before {
					_ = backoff.Wait(writing, 20*time.Millisecond) // the loop looks at it
				}
			}
		})
	}
	t.Cleanup(func() {
		stop()
		group.Wait()
		require.NoError(t, db.Close())
	})
	return e
}

// shop is the address of the database.
func (e *estate) shop() string { return e.at("shop") }

func (e *estate) at(database string) string {
	u, err := url.Parse(e.server.URL)
	require.NoError(e.t, err)
	u.Path = "/" + database
	return u.String()
}

// relay starts a projector with connections of its own.
func (e *estate) relay() {
	e.t.Helper()
	db, store := e.connect()
	p, err := projector.New(&e.tape, &projector.Config{
		Lease: time.Minute, PublishTimeout: 10 * time.Second, Telemetry: telemetry.Config{Logger: quiet()},
	}, store)
	require.NoError(e.t, err)
	ctx, cancel := context.WithCancel(e.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	e.t.Cleanup(func() {
		cancel()
		require.NoError(e.t, await.Receive(e.t, ended, "the projector ends"))
		require.NoError(e.t, db.Close())
	})
}

// connect opens the store of a service.
func (e *estate) connect() (*bun.DB, *outbox.Store) {
	e.t.Helper()
	db := openQuietly(e.t, e.db.DSN)
	return db, outbox.NewStore(db, &outbox.Config{Source: "endurance"})
}

// openQuietly opens a database as a service does, with connections that last as long as the server lets them.
func openQuietly(t *testing.T, dsn string) *bun.DB {
	t.Helper()
	db, err := config.OpenDB(t.Context(), config.Config{DatabaseURL: dsn, Telemetry: telemetry.Config{Logger: quiet()}})
	require.NoError(t, err)
	return db
}

// sh runs a command as an operator does.
func (e *estate) sh(command string) {
	e.t.Helper()
	u, err := url.Parse(e.server.URL)
	require.NoError(e.t, err)
	password, _ := u.User.Password()
	cmd := exec.CommandContext(context.WithoutCancel(e.t.Context()), "/bin/sh", "-c", command)
	cmd.Dir = e.folder
	cmd.Env = []string{
		"PATH=" + e.server.Programs() + ":" + os.Getenv("PATH"), "PGHOST=" + u.Hostname(), "PGPORT=" + u.Port(), "PGUSER=" + u.User.Username(),
		"PGPASSWORD=" + password,
	}
	out, err := cmd.CombinedOutput()
	require.NoError(e.t, err, "%s: %s", command, out)
}

// moreEvents waits until so many more were committed.
func (e *estate) moreEvents(n int) {
	e.t.Helper()
	until := e.done.Load() + int64(n)
	await.True(e.t, func() bool { return e.done.Load() >= until }, "%d more events", n)
}

// swap puts shop_new in the place of shop.
func (e *estate) swap() {
	e.t.Helper()
	e.importTo(e.at("shop_new"))
	e.sh(closeShop)
	e.sh(swapShop)
	e.sh(forgetShop)
}

// clone starts another server on files.
func (e *estate) clone(fill func(to string) error) *pgtest.Own {
	e.t.Helper()
	server, err := e.server.Clone(e.t.Context(), fill)
	require.NoError(e.t, err)
	return &pgtest.Own{PostgresServer: server}
}

// replace returns what puts the files of another server in the place of the own ones.
func (e *estate) replace(other *pgtest.Own) func() {
	return func() {
		e.t.Helper()
		e.importTo(strings.Replace(other.URL, "/postgres?", "/shop?", 1))
		require.NoError(e.t, other.End(os.Interrupt))
		require.NoError(e.t, e.server.End(os.Interrupt))
		require.NoError(e.t, e.server.TakeFiles(other.PostgresServer))
		require.NoError(e.t, other.Stop())
		require.NoError(e.t, e.server.Restart(e.t.Context()))
	}
}

// importTo adds events to what is about to be restored, until its sequence is beyond that of the database.
func (e *estate) importTo(dsn string) {
	e.t.Helper()
	number := func(conn *pgx.Conn) (n int64) {
		require.NoError(e.t, conn.QueryRow(e.t.Context(), "SELECT last_value FROM "+e.db.Schema+".outbox_seq").Scan(&n))
		return n
	}
	here, err := pgx.Connect(e.t.Context(), e.shop())
	require.NoError(e.t, err)
	defer here.Close(context.WithoutCancel(e.t.Context()))
	there, err := pgx.Connect(e.t.Context(), dsn)
	require.NoError(e.t, err)
	defer there.Close(context.WithoutCancel(e.t.Context()))
	_, err = there.Exec(e.t.Context(), fmt.Sprintf(`SELECT %s.oncebox_add('imported', to_jsonb(n), 'imported', aggregate_type => 'import',
		aggregate_id => 'i' || n %% 50, aggregate_version => 1, source => 'import') FROM generate_series(1, $1::bigint) n`, e.db.Schema),
		number(here)-number(there)+500)
	require.NoError(e.t, err)
}

// drain waits until all that is committed is called SENT. Nothing is committed meanwhile, nor before judge.
func (e *estate) drain() {
	e.t.Helper()
	e.gate.Lock()
	await.True(e.t, seldom(func() bool {
		var waits int
		err := e.db.NewRaw("SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)").Scan(e.t.Context(), &waits)
		return err == nil && waits == 0
	}), "all is called SENT")
}

// judge compares the database with the events that were published. Each fault counts once.
func (e *estate) judge() (r restored) {
	e.t.Helper()
	defer e.gate.Unlock()
	var rows []struct{ ID, AggregateID string }
	require.NoError(e.t, e.db.NewRaw("SELECT id, aggregate_id FROM outbox_messages ORDER BY sequence").Scan(e.t.Context(), &rows))
	e.tape.mu.Lock()
	defer e.tape.mu.Unlock()
	first, times := map[string]int{}, map[string]int{}
	for n, id := range e.tape.ids {
		if times[id]++; times[id] == 1 {
			first[id] = n
		}
	}
	latest := map[string]int{}
	r.events = len(rows)
	for _, row := range rows {
		n, published := first[row.ID]
		switch {
		case !published:
			r.count(e.faults, row.ID, &r.unpublished)
			continue
		case n < latest[row.AggregateID]:
			r.count(e.faults, row.ID, &r.disorder)
		}
		latest[row.AggregateID] = max(latest[row.AggregateID], n)
		r.copies += times[row.ID] - 1
		delete(times, row.ID)
	}
	r.gone = len(times)
	return r
}

func (r *restored) count(faults map[string]bool, id string, n *int) {
	if !faults[id] {
		faults[id] = true
		*n++
	}
}
