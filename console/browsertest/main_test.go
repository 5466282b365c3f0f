package browsertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a page may take on a busy machine.
const patience = 5 * time.Minute

type orderPlaced struct {
	Order    string `json:"order"`
	Currency string `json:"currency"`
}

func (orderPlaced) EventType() string { return "order.placed" }

// hostile is what an attacker would like a page to obey.
const hostile = `<script>alert(1)</script><img src=x onerror=alert(2)>`

// shop is a service whose consumer "billing" knows euros only.
type shop struct {
	*oncetest.Kit

	t      *testing.T
	billed atomic.Int64
	closed atomic.Bool // the bank: messages fail, and are tried again
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t}
	s.Kit = oncetest.New(t, func(setup oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(setup.DB, setup.Broker, setup.Config)
		if err != nil {
			return nil, err
		}
		event.Register[orderPlaced](app.Registry)
		router := messaging.NewRouter(app.Registry)
		messaging.Handle(router, func(_ context.Context, e orderPlaced) error {
			if s.closed.Load() {
				return fmt.Errorf("the bank is closed: order %s", e.Order)
			}
			if e.Currency != "EUR" {
				return messaging.Permanent(fmt.Errorf("unknown currency %q of order %s", e.Currency, e.Order))
			}
			s.billed.Add(1)
			return nil
		})
		app.Consume("order", "billing", router)
		return app, nil
	})
	return s
}

func (s *shop) place(order, currency string) {
	s.t.Helper()
	require.NoError(s.t, s.App.UoW.Do(s.t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", orderPlaced{order, currency}, event.WithOrderingKey(order))
	}))
}

// poisonEvent has an event that no broker takes.
func (s *shop) poisonEvent(order, why string) {
	s.t.Helper()
	s.FailNextPublish(messaging.Permanent(errors.New(why)))
	s.place(order, "EUR")
	require.Len(s.t, s.DrainFailing(), 1)
}

// poisonMessage has a message that the consumer gives up.
func (s *shop) poisonMessage(order, currency string) {
	s.t.Helper()
	s.place(order, currency)
	require.Len(s.t, s.DrainFailing(), 1)
}

// stuckMessage makes a message that fails and is tried again, and a second message that waits behind it.
func (s *shop) stuckMessage(order string) {
	s.t.Helper()
	s.closed.Store(true)
	s.place(order, "EUR")
	s.place(order, "EUR")
	require.Len(s.t, s.DrainFailing(), 1)
	s.closed.Store(false)
}

// remind has an event that waits for its time.
func (s *shop) remind(order string, at time.Time) {
	s.t.Helper()
	require.NoError(s.t, s.App.UoW.Do(s.t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", orderPlaced{order, "EUR"}, event.WithNotBefore(at))
	}))
}

// serve mounts the page for one actor who may do everything.
func (s *shop) serve() string { return s.serveRefreshing(0) }

// serveRefreshing is serve with another pause between two loads of a page.
func (s *shop) serveRefreshing(every time.Duration) string {
	s.t.Helper()
	handler, err := console.New(s.DB, func(*http.Request) (console.Access, error) {
		return console.Access{Actor: "ann@example.com", Read: true, Act: true}, nil
	}, &console.Config{
		Outbox: s.App.Outbox, Inbox: s.App.Inbox, Idempotency: s.App.Idempotency, Title: "shop, production",
		TraceURL: "https://tempo.example.com/trace/{trace_id}", Refresh: every,
	})
	require.NoError(s.t, err)
	r := chi.NewRouter()
	r.Mount("/console", handler)
	server := httptest.NewServer(r)
	s.t.Cleanup(server.Close)
	return server.URL + "/console/"
}

// browser is a tab, and what went wrong in it.
type browser struct {
	t     *testing.T
	ctx   context.Context
	base  string
	mu    sync.Mutex
	wrong []string
}

// open starts a browser. It fails the test at its end if a page opened a dialog, or the browser complained about a page: of what the
// Content-Security-Policy forbids, for example.
func open(t *testing.T, base string) *browser {
	t.Helper()
	program, err := devenv.Browser(t.Context(), nil)
	require.NoError(t, err)
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program), chromedp.WindowSize(1280, 1000)}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to have one as root
	}
	b := &browser{t: t, base: base}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithAllocatorOptions(options...), chromedp.WithListener(func(ev any) {
		switch ev := ev.(type) {
		case *page.EventJavascriptDialogOpening:
			b.complain("a dialog: " + ev.Message)
		case *cdplog.EventEntryAdded:
			b.complain(fmt.Sprintf("%s: %s %s", ev.Entry.Level, ev.Entry.Text, ev.Entry.URL))
		}
	}))
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(b.ctx))
	_, err = chromedp.Call(b.ctx, cdplog.Enable, cdp.Empty{})
	require.NoError(t, err)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.wrong)
	})
	return b
}

func (b *browser) complain(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, what)
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v; wrong until then: %q", err, b.wrong)
	}
}

// read runs an action that returns something.
func read[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, action)
	require.NoError(b.t, err)
	return value
}

// visit loads a page.
func (b *browser) visit(name string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base+name), chromedp.WaitVisible(chromedp.CSS("main")))
}

// click clicks an element that changes the page and leads to no other one.
func (b *browser) click(selector chromedp.CSS) {
	b.t.Helper()
	b.do(chromedp.Click(selector))
}

// follow clicks what leads to another page, and waits for it.
func (b *browser) follow(selector chromedp.CSS) {
	b.t.Helper()
	_, err := chromedp.RunResponse(b.ctx, chromedp.Click(selector))
	require.NoError(b.t, err, selector)
	b.do(chromedp.WaitVisible(chromedp.CSS("main")))
}

// write replaces the text of a field, as a person types it.
func (b *browser) write(selector chromedp.CSS, text string) {
	b.t.Helper()
	b.do(chromedp.WaitVisible(selector), chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).select()", selector)),
		chromedp.SendKeys(selector, text))
}

// text is what a person reads.
func (b *browser) text() string {
	b.t.Helper()
	return strings.Join(strings.Fields(read(b, chromedp.Text(chromedp.CSS("main")))), " ")
}

// count says how many elements there are.
func (b *browser) count(selector string) int {
	b.t.Helper()
	return read(b, chromedp.Evaluate[int](fmt.Sprintf("document.querySelectorAll(%q).length", selector)))
}
