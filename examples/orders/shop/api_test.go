package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/serve"
)

// shop is the whole service in this process, on the broker in memory.
type shop struct {
	t   *testing.T
	url string
	db  *pgtest.DB
	log *logbook.Book
}

func openShop(t *testing.T) *shop {
	t.Helper()
	return openShopWith(t, config.Config{})
}

func openShopWith(t *testing.T, cfg config.Config) *shop {
	t.Helper()
	db := pgtest.Open(t)
	return openShopOn(t, db, db.DSN, cfg)
}

func openShopOn(t *testing.T, db *pgtest.DB, url string, cfg config.Config) *shop {
	t.Helper()
	cfg.DatabaseURL = url
	if cfg.Pooler {
		cfg.DatabaseURL = db.Pooled(t).DSN
	}
	s := &shop{t: t, db: db, log: &logbook.Book{}}
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	s.url = start(t, cfg, nil)
	return s
}

// start starts a process of the service on the broker in memory, with these settings and no others, and stops it when the test ends.
func start(t *testing.T, cfg config.Config, change func(*serve.Service)) (url string) {
	t.Helper()
	if cfg.Telemetry.Logger == nil {
		cfg.Telemetry.Logger = slog.New(slog.DiscardHandler)
	}
	s := Service()
	s.Broker = memory.New(&memory.Config{Retain: 1000})
	configure, setup := s.Configure, s.Setup
	s.Configure = func(app *config.Config, process *serve.Config) error {
		*app, process.Addr = cfg, "127.0.0.1:0"
		return configure(app, process)
	}
	s.Setup = func(ctx context.Context, app *oncebox.App) (http.Handler, error) {
		h, err := setup(ctx, app)
		return broken(h), err
	}
	started := make(chan net.Addr, 1)
	s.Started = func(at net.Addr) { started <- at }
	if change != nil {
		change(&s)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve.Run(ctx, s) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, s.Broker.Close())
	})
	select {
	case at := <-started:
		return "http://" + at.String()
	case err := <-ended:
		ended <- nil
		require.NoError(t, err)
		return ""
	}
}

// reply is an answer, as a client keeps it.
type reply struct {
	status int
	header http.Header
	body   string
}

func (s *shop) do(method, path, body string, header ...string) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(text)}
}

func (s *shop) post(key, path, body string, header ...string) reply {
	s.t.Helper()
	return s.do(http.MethodPost, path, body, append(header, "Idempotency-Key", key)...)
}

// place places an order of 1000 cents and returns its id.
func (s *shop) place(key string, header ...string) string {
	s.t.Helper()
	r := s.post(key, "/orders", placeBody, header...)
	require.Equal(s.t, http.StatusCreated, r.status, r.body)
	return strings.TrimPrefix(r.header.Get("Location"), "/orders/")
}

const (
	placeBody = `{"customer_id":"c1","items":[{"sku":"a","qty":2,"price_cents":500}]}`
	itemBody  = `{"sku":"b","qty":1,"price_cents":100}`
)

func orderBody(id, status string, total, version int) string {
	return fmt.Sprintf(`{"id":"%s","status":"%s","total_cents":%d,"version":%d}`, id, status, total, version)
}

func TestLifeOfAnOrder(t *testing.T) {
	t.Parallel()
	testLifeOfAnOrder(t, openShop(t))
}

func TestLifeOfAnOrderBehindAPooler(t *testing.T) {
	t.Parallel()
	testLifeOfAnOrder(t, openShopWith(t, config.Config{Pooler: true}))
}

func testLifeOfAnOrder(t *testing.T, s *shop) {
	t.Helper()
	placed := s.post("k1", "/orders", placeBody)
	id := strings.TrimPrefix(placed.header.Get("Location"), "/orders/")
	require.Equal(t, http.StatusCreated, placed.status)
	require.Equal(t, "application/json", placed.header.Get("Content-Type"))
	require.Equal(t, orderBody(id, "placed", 1000, 1), placed.body)

	added := s.post("k2", "/orders/"+id+"/items", itemBody)
	require.Equal(t, http.StatusOK, added.status)
	require.Equal(t, orderBody(id, "placed", 1100, 2), added.body)
	s.requireSummary("c1", "", `{"orders_placed":1,"orders_cancelled":0,"total_cents":1100}`)

	cancelled := s.post("k3", "/orders/"+id+"/cancel", "")
	require.Equal(t, http.StatusOK, cancelled.status)
	require.Equal(t, orderBody(id, "cancelled", 1100, 3), cancelled.body)

	seen := s.do(http.MethodGet, "/orders/"+id, "")
	require.Equal(t, http.StatusOK, seen.status)
	require.Equal(t, cancelled.body, seen.body)
	s.requireSummary("c1", "", `{"orders_placed":1,"orders_cancelled":1,"total_cents":0}`)

	var versions []int64
	require.NoError(t, s.db.NewRaw(`SELECT aggregate_version FROM outbox_messages WHERE aggregate_id = ? ORDER BY sequence`, id).
		Scan(t.Context(), &versions))
	require.Equal(t, []int64{1, 2, 3}, versions)
}

// requireSummary waits until the read model says what it should.
func (s *shop) requireSummary(customer, tenant, want string) {
	s.t.Helper()
	s.requireAnswer("/customers/"+customer+"/summary", http.StatusOK, want, "X-Tenant-ID", tenant)
}

func TestRetryGetsTheSameBytes(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	id := s.place("k1")
	for _, c := range []struct{ key, path, body string }{
		{"k1", "/orders", placeBody},
		{"k2", "/orders/" + id + "/items", itemBody},
		{"k3", "/orders/" + id + "/cancel", ""},
		{"k4", "/orders/" + id + "/cancel", ""},   // refused by the domain
		{"k5", "/orders", `{"customer_id":"c1"}`}, // malformed
	} {
		first := s.post(c.key, c.path, c.body)
		again := s.post(c.key, c.path, c.body)
		require.Equal(t, first.status, again.status)
		require.Equal(t, first.body, again.body)
		for _, name := range []string{"Location", "Content-Type"} {
			require.Equal(t, first.header.Get(name), again.header.Get(name))
		}
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"), "%s %s", c.key, again.body)
	}
	require.Equal(t, 1, s.count("SELECT count(*) FROM orders"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM order_items"))
	require.Equal(t, orderBody(id, "cancelled", 1100, 3), s.do(http.MethodGet, "/orders/"+id, "").body)
}

// A refused client finds out why.
func TestProblemsAreExplained(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	refused := s.do(http.MethodPost, "/orders", placeBody)
	var problem struct {
		Type string `json:"type"`
	}
	require.NoError(t, json.Unmarshal([]byte(refused.body), &problem))
	for _, path := range []string{problem.Type, "/problems/", "/problems/openapi.json"} {
		require.Equal(t, http.StatusOK, s.do(http.MethodGet, path, "").status, path)
	}
	require.Contains(t, s.do(http.MethodGet, "/problems/", "").body, "A key is required.")
}

func (s *shop) count(query string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.NewRaw(query, args...).Scan(s.t.Context(), &n))
	return n
}

func TestTwoClientsWithOneKeyPlaceOneOrder(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	const clients = 8
	replies := make([]reply, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for replies[i].status == 0 || replies[i].status == http.StatusConflict {
				replies[i] = s.post("one", "/orders", placeBody)
			}
		})
	}
	wg.Wait()
	for _, r := range replies {
		require.Equal(t, http.StatusCreated, r.status)
		require.Equal(t, replies[0].body, r.body)
	}
	require.Equal(t, 1, s.count("SELECT count(*) FROM orders"))
}

func TestKeyInFlightIsAConflict(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	id := s.place("k1")
	// Holds the order, so that the request stays where it is until the row is let go.
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM orders FOR UPDATE")
	require.NoError(t, err)

	first := make(chan reply, 1)
	go func() { first <- s.post("k2", "/orders/"+id+"/cancel", "") }()
	await.True(t, func() bool {
		return s.count(`SELECT count(*) FROM pg_locks waits JOIN pg_locks holds USING (pid)
			WHERE NOT waits.granted AND holds.granted AND holds.relation = 'orders'::regclass`) > 0
	}, "the request to wait for the row")
	second := s.post("k2", "/orders/"+id+"/cancel", "")
	require.Equal(t, http.StatusConflict, second.status)
	require.NotEmpty(t, second.header.Get("Retry-After"))
	require.Equal(t, "application/problem+json", second.header.Get("Content-Type"))

	require.NoError(t, tx.Rollback())
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Equal(t, http.StatusOK, s.post("k2", "/orders/"+id+"/cancel", "").status)
}

// Different requests for one order meet each other's versions. Both are done, one after the other, and no client gets an error.
func TestConcurrentChangesOfOneOrderAllCount(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	id := s.place("k1")
	const changes = 12
	replies := make([]reply, changes)
	var wg sync.WaitGroup
	for i := range changes {
		wg.Go(func() { replies[i] = s.post(fmt.Sprintf("add-%d", i), "/orders/"+id+"/items", itemBody) })
	}
	wg.Wait()
	versions := map[int64]bool{}
	for _, r := range replies {
		require.Equal(t, http.StatusOK, r.status, r.body)
		var o orderView
		require.NoError(t, json.Unmarshal([]byte(r.body), &o))
		versions[o.Version] = true
	}
	require.Len(t, versions, changes)
	require.Equal(t, orderBody(id, "placed", 1000+100*changes, 1+changes), s.do(http.MethodGet, "/orders/"+id, "").body)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	id, cancelled := s.place("k1"), s.place("k2")
	require.Equal(t, http.StatusOK, s.post("k3", "/orders/"+cancelled+"/cancel", "").status)
	unknown := "01890000-0000-7000-8000-000000000000"

	for name, c := range map[string]struct {
		path, body string
		status     int
	}{
		"no body":              {"/orders", "", 400},
		"no JSON":              {"/orders", "{", 400},
		"two values":           {"/orders", placeBody + placeBody, 400},
		"an unknown field":     {"/orders", `{"customer_id":"c1","items":[{"sku":"a","qty":1,"price":5}]}`, 400},
		"no customer":          {"/orders", `{"items":[{"sku":"a","qty":1,"price_cents":5}]}`, 400},
		"NUL in the customer":  {"/orders", `{"customer_id":"c\u0000","items":[{"sku":"a","qty":1,"price_cents":5}]}`, 400},
		"bad UTF-8":            {"/orders", "{\"customer_id\":\"c\xff\",\"items\":[{\"sku\":\"a\",\"qty\":1,\"price_cents\":5}]}", 400},
		"no items":             {"/orders", `{"customer_id":"c1","items":[]}`, 400},
		"no sku":               {"/orders", `{"customer_id":"c1","items":[{"qty":1,"price_cents":5}]}`, 400},
		"quantity zero":        {"/orders", `{"customer_id":"c1","items":[{"sku":"a","qty":0,"price_cents":5}]}`, 400},
		"half a piece":         {"/orders", `{"customer_id":"c1","items":[{"sku":"a","qty":0.5,"price_cents":5}]}`, 400},
		"a negative price":     {"/orders", `{"customer_id":"c1","items":[{"sku":"a","qty":1,"price_cents":-5}]}`, 400},
		"no price":             {"/orders", `{"customer_id":"c1","items":[{"sku":"a","qty":1}]}`, 400},
		"more than an int64":   {"/orders", `{"customer_id":"c1","items":[{"sku":"a","qty":1,"price_cents":99999999999999999999}]}`, 400},
		"too large in total":   {"/orders", `{"customer_id":"c1","items":[{"sku":"a","qty":1000000,"price_cents":1000000000000}]}`, 422},
		"a malformed item":     {"/orders/" + id + "/items", `{"sku":"","qty":1,"price_cents":5}`, 400},
		"an item when too big": {"/orders/" + id + "/items", `{"sku":"a","qty":1000000,"price_cents":1000000000000}`, 422},
		"an item too late":     {"/orders/" + cancelled + "/items", itemBody, 422},
		"cancelled twice":      {"/orders/" + cancelled + "/cancel", "", 422},
		"no such order":        {"/orders/" + unknown + "/cancel", "", 404},
		"an item for nobody":   {"/orders/" + unknown + "/items", itemBody, 404},
		"no order id":          {"/orders/x%00/cancel", "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.post(strings.ReplaceAll(name, " ", "-"), c.path, c.body)
			require.Equal(t, c.status, r.status, r.body)
			require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
		})
	}
	require.Equal(t, 404, s.do(http.MethodGet, "/orders/"+unknown, "").status)
	require.Equal(t, 404, s.do(http.MethodGet, "/orders/X", "").status)
	require.Equal(t, 2, s.count("SELECT count(*) FROM orders"), "nothing was left behind")
	require.Equal(t, 3, s.count("SELECT count(*) FROM outbox_messages"))
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	require.Equal(t, 400, s.do(http.MethodPost, "/orders", placeBody).status, "missing")
	require.Equal(t, 400, s.post(strings.Repeat("k", 256), "/orders", placeBody).status, "too long")
	require.Equal(t, 400, s.post(`"open`, "/orders", placeBody).status, "malformed")
	s.place("k1")
	require.Equal(t, 422, s.post("k1", "/orders", strings.Replace(placeBody, "c1", "c2", 1)).status, "another body")
	require.Equal(t, 1, s.count("SELECT count(*) FROM orders"))
}

func TestTenantsDoNotMeet(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	id := s.place("k1")
	other := s.place("k1", "X-Tenant-ID", "acme") // the same key
	require.NotEqual(t, id, other)

	require.Equal(t, 200, s.do(http.MethodGet, "/orders/"+id, "", "X-Tenant-ID", "default").status, "no header means default")
	require.Equal(t, 404, s.do(http.MethodGet, "/orders/"+id, "", "X-Tenant-ID", "acme").status)
	require.Equal(t, 404, s.post("k2", "/orders/"+other+"/cancel", "").status)
	require.Equal(t, 200, s.post("k2", "/orders/"+other+"/cancel", "", "X-Tenant-ID", "acme").status)
	require.Equal(t, 400, s.do(http.MethodGet, "/orders/"+id, "", "X-Tenant-ID", strings.Repeat("t", 1000)).status)
	s.requireSummary("c1", "", `{"orders_placed":1,"orders_cancelled":0,"total_cents":1000}`)
	s.requireSummary("c1", "acme", `{"orders_placed":1,"orders_cancelled":1,"total_cents":0}`)
	s.requireSummary("nobody", "", `{"orders_placed":0,"orders_cancelled":0,"total_cents":0}`)
}

func TestCustomerIDMayBeAnyText(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	r := s.post("k1", "/orders", `{"customer_id":"a/b ü?","items":[{"sku":"a","qty":1,"price_cents":5}]}`)
	require.Equal(t, 201, r.status, r.body)
	s.requireSummary("a%2Fb%20%C3%BC%3F", "", `{"orders_placed":1,"orders_cancelled":0,"total_cents":5}`)
	require.Equal(t, 400, s.do(http.MethodGet, "/customers/%00/summary", "").status)
}

func (s *shop) requireReady() {
	s.t.Helper()
	s.requireAnswer("/readyz", http.StatusOK, "ready")
}

// requireAnswer waits until a page says so.
func (s *shop) requireAnswer(path string, status int, text string, header ...string) {
	s.t.Helper()
	var last reply
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s said at last: %d %s", path, last.status, last.body)
		}
	}()
	await.True(s.t, func() bool {
		last = s.do(http.MethodGet, path, "", header...)
		return last.status == status && strings.Contains(last.body, text)
	}, "%d %s at %s", status, text, path)
}

func TestHealthAndMetrics(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	require.Equal(t, 200, s.do(http.MethodGet, "/healthz", "").status)
	s.requireReady()
	s.place("k1")
	s.requireSummary("c1", "", `{"orders_placed":1,"orders_cancelled":0,"total_cents":1000}`)

	for _, name := range []string{
		"oncebox_uow_units_total", "oncebox_outbox_published_total", "oncebox_consumer_handled_total",
		"oncebox_idempotency_requests_total", "go_goroutines",
	} {
		// What was done is counted after others can see it.
		s.requireAnswer("/metrics", http.StatusOK, name)
	}

	_, err := s.db.ExecContext(t.Context(), "ALTER TABLE customer_summary RENAME TO elsewhere")
	require.NoError(t, err)
	// What stands in the way is for the log: hosts and users of databases are nobody else's business.
	s.requireAnswer("/readyz", http.StatusServiceUnavailable, "not ready")
	r := s.do(http.MethodGet, "/readyz", "")
	require.Equal(t, "not ready: the log of this process says why\n", r.body)
	await.True(t, func() bool {
		s.do(http.MethodGet, "/readyz", "") // a probe that took too long reports only that
		text := s.log.String()
		return strings.Contains(text, "tables are missing") && strings.Contains(text, "customer_summary")
	}, "the reason in the log")
	require.Equal(t, 200, s.do(http.MethodGet, "/healthz", "").status)
}
