package shop

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/httpmw/httpmwtest"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/serve"
)

// TestConformance also runs in processes of TestConformanceOfACopyWithoutARule, with something broken.
func TestConformance(t *testing.T) {
	t.Parallel()
	testConformance(t, openShop(t))
}

func TestConformanceBehindAPooler(t *testing.T) {
	t.Parallel()
	testConformance(t, openShopWith(t, config.Config{Pooler: true}))
}

func testConformance(t *testing.T, s *shop) {
	t.Helper()
	target, err := httpmwtest.ReadTarget("testdata/conformance.json")
	require.NoError(t, err)
	target.URL, target.Patience = s.url, breakages()[os.Getenv(brokenVariable)].patience()
	target.Effects = func() (n int, err error) {
		err = s.db.NewRaw("SELECT sum(version) FROM orders").Scan(t.Context(), &n)
		return n, err
	}
	of := func(key, change string) httpmwtest.Request {
		tenant := target.Create.Header
		id := s.place(key, "X-Tenant-Id", tenant["X-Tenant-Id"])
		return httpmwtest.Request{Path: "/orders/" + id + change, Header: tenant, Body: itemBody}
	}
	target.Elsewhere = []httpmwtest.Request{of("elsewhere", "/items")}
	cancelled := of("cancelled", "/cancel")
	require.Equal(t, http.StatusOK, s.post("cancel", cancelled.Path, "", "X-Tenant-Id", cancelled.Header["X-Tenant-Id"]).status)
	target.Answers[http.StatusUnprocessableEntity] = cancelled
	slow := of("slow", "/items")
	target.Slow = &slow
	target.Conflicts, target.Aborts = new(of("conflicts", "/items")), new(of("aborts", "/items"))
	s.failOnce(t, *target.Conflicts, "BEFORE UPDATE ON orders", "serialization_failure")
	s.failOnce(t, *target.Aborts, "AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED", "check_violation")
	target.Down = new(target.Create)
	link := linktest.New(t, s.db.DSN)
	target.Down.URL = s.another(t, config.Config{DatabaseURL: link.URL})
	link.SetDown(true)
	target.Expires = new(target.Create)
	target.Expires.URL = s.another(t, config.Config{DatabaseURL: s.db.DSN, Idempotency: idempotency.Config{TTL: time.Second}})
	defer s.slowDown()()
	httpmwtest.Run(t, target)
}

// another serves a further process on the same tables, which takes requests only.
func (s *shop) another(t *testing.T, cfg config.Config) (url string) {
	t.Helper()
	return start(t, cfg, func(service *serve.Service) {
		configure := service.Configure
		service.Configure = func(app *config.Config, process *serve.Config) error {
			err := configure(app, process)
			process.Parts = []string{serve.API}
			return err
		}
	})
}

// failOnce makes the first change of the request's order fail.
func (s *shop) failOnce(t *testing.T, q httpmwtest.Request, when, condition string) {
	t.Helper()
	kind := "TRIGGER"
	if strings.Contains(when, "DEFERRABLE") {
		kind = "CONSTRAINT TRIGGER"
	}
	_, err := s.db.Exec(fmt.Sprintf(`CREATE SEQUENCE %[1]s_tries;
		CREATE FUNCTION %[1]s_once() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
			IF nextval('%[1]s_tries') = 1 THEN RAISE %[1]s; END IF;
			RETURN NEW;
		END $f$;
		CREATE %[2]s %[1]s_once %[3]s FOR EACH ROW WHEN (NEW.id = '%[4]s') EXECUTE FUNCTION %[1]s_once()`,
		condition, kind, when, strings.Split(q.Path, "/")[2]))
	require.NoError(t, err)
}

// holdTime is about how long a change of an order takes while slowDown is at work. The suite tries until it meets one in flight.
const holdTime = 200 * time.Millisecond

// slowDown holds all orders most of the time, so that changes of them take a while, until it is told to end.
func (s *shop) slowDown() (end func()) {
	stop, ended := make(chan struct{}), make(chan error, 1)
	hold := func() error {
		tx, err := s.db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		_, err = tx.Exec("SELECT FROM orders FOR UPDATE")
		select {
		case <-stop:
		case <-time.After(holdTime):
		}
		return err
	}
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := hold(); err != nil {
				ended <- err
				return
			}
		}
	}()
	return func() {
		close(stop)
		require.NoError(s.t, <-ended)
	}
}
