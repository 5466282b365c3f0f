package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/history"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// consolePages measures how long pages of the console take over full tables. The floor is a handler that answers with
// as many bytes and reads nothing.
func consolePages(ctx context.Context, args []string) error {
	b := &consoleBench{}
	flags := flag.NewFlagSet("console", flag.ContinueOnError)
	flags.IntVar(&b.rows, "rows", 1_000_000, "events that wait, and as many dead letters of the outbox and of consumers; a tenth of it held, and parked")
	flags.IntVar(&b.requests, "requests", 300, "requests of each page, one after the other")
	if err := parse(flags, args); err != nil {
		return err
	}
	return withPostgres(ctx, func(dsn string) error {
		return withSchema(ctx, dsn, func(s *schema) error { return b.run(ctx, s) })
	})
}

// consoleBench is the state of the command.
type consoleBench struct {
	rows, requests int

	pages []*consolePage
}

// consolePage is a page and how long its answers took, in milliseconds.
type consolePage struct {
	name, address string
	took          sample
	bytes         int
}

func (b *consoleBench) run(ctx context.Context, s *schema) error {
	if err := (fullTables{waiting: b.rows, dead: b.rows}).fill(ctx, s); err != nil {
		return err
	}
	db, err := s.bun(pgx.QueryExecModeExec, 10)
	if err != nil {
		return err
	}
	defer db.Close()
	events := outbox.NewStore(db, nil)
	if err := fillHistory(ctx, s, db, events); err != nil {
		return err
	}
	page, err := console.New(db, func(*http.Request) (console.Access, error) {
		return console.Access{Actor: source, Read: true, Act: true}, nil
	}, &console.Config{
		Outbox: events, Inbox: inbox.New(uow.New(db, nil), nil), Idempotency: idempotency.NewStore(nil),
	})
	if err != nil {
		return err
	}
	bare := &bareHandler{}
	mux := http.NewServeMux()
	mux.Handle("/bare", bare)
	mux.Handle("/console/", page)
	url, stop, err := serveConsole(ctx, mux)
	if err != nil {
		return err
	}
	b.pages = []*consolePage{
		{name: "bare", address: url + "/bare"},
		{name: "overview", address: url + "/console/"},
		{name: "overview-day", address: url + "/console/?span=24h"},
		{name: "dead", address: url + "/console/dead?box=outbox"},
		{name: "delayed", address: url + "/console/delayed"},
		{name: "dead-tenant", address: url + "/console/dead?box=outbox&tenant=tenant-7"},
		{name: "dead-consumer", address: url + "/console/dead?box=inbox&consumer=consumer-3"},
		{name: "consumer", address: url + "/console/consumer?name=consumer-3"},
	}
	if err := b.measure(ctx, bare); err != nil {
		return errors.Join(err, stop())
	}
	b.report()
	return stop()
}

// dayOfMinutes enters a row for each minute of a day: for the outbox, and for each of the consumers of the full tables.
const dayOfMinutes = `INSERT INTO oncebox_history (part, at, consumer, waiting, parked, failing, dead, oldest, came, went, failed, counted)
SELECT s.part, date_trunc('minute', clock_timestamp()) - n * interval '1 minute', s.consumer, 1000 + n * 37 % 500, 100 + n * 11 % 90, n % 7, 1000, n % 60,
	600 + n * 13 % 70, 600 + n * 17 % 70, n % 5, 60
FROM generate_series(0, 1439) n,
	(SELECT 'outbox' AS part, '' AS consumer UNION ALL SELECT 'inbox', 'consumer-' || c FROM generate_series(0, 19) c) s`

// fillHistory makes the history that production has after a day: the writers merge what is older than two hours.
func fillHistory(ctx context.Context, s *schema, db *bun.DB, events *outbox.Store) error {
	progressf("filling: a day of history")
	if err := s.exec(ctx, dayOfMinutes); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	for _, part := range []operator.Part{operator.PartOutbox, operator.PartInbox} {
		w := history.Writer{Part: part, Run: events.Handle().Run, Log: events.Telemetry().Logger}
		if err := w.Tidy(ctx, db); err != nil {
			return err
		}
	}
	return s.exec(ctx, "VACUUM ANALYZE oncebox_history")
}

// bareHandler answers as many bytes as the first page has, and does nothing for them.
type bareHandler struct{ body []byte }

func (h *bareHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(h.body)
}

func serveConsole(ctx context.Context, handler http.Handler) (url string, stop func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() error {
		err := server.Close()
		if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		return err
	}, nil
}

// measure requests the pages in turns, so that other work of the machine affects all of them equally. The
// first turn is not measured.
func (b *consoleBench) measure(ctx context.Context, bare *bareHandler) error {
	for turn := range b.requests + 1 {
		for _, p := range b.pages {
			took, body, err := fetch(ctx, p.address)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if p.name == "overview" {
				bare.body = body
			}
			if turn > 0 {
				p.took, p.bytes = append(p.took, took), len(body)
			}
		}
	}
	return nil
}

// fetch returns how long an answer took to its last byte, in milliseconds.
func fetch(ctx context.Context, url string) (took float64, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	begun := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}
	return time.Since(begun).Seconds() * 1000, body, err
}

// percentile returns a percentile by the nearest-rank method.
func percentile(took sample, p float64) float64 {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[max(int(math.Ceil(p*float64(len(sorted))))-1, 0)]
}

func (b *consoleBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "page\tp50 ms\tp95 ms\tbytes")
	var line strings.Builder
	fmt.Fprintf(&line, "console rows=%d", b.rows)
	for _, p := range b.pages {
		p50, p95 := percentile(p.took, 0.5), percentile(p.took, 0.95)
		fmt.Fprintf(out, "%s\t%.1f\t%.1f\t%d\n", p.name, p50, p95, p.bytes)
		fmt.Fprintf(&line, " %s_p50=%.1f %s_p95=%.1f", p.name, p50, p.name, p95)
	}
	_ = out.Flush()
	fmt.Println(line.String())
}
