package console_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type orderPlaced struct {
	Order string `json:"order"`
}

func (orderPlaced) EventType() string { return "order.placed" }

// hostile is what an attacker would like a page to obey.
const hostile = `<script>alert(1)</script><img src=x onerror=alert(2)>"'&{{.}}`

// shop is a service with an outbox and a consumer "billing". While it is broken, its handler refuses each message for good.
type shop struct {
	*oncetest.Kit

	t       *testing.T
	broken  atomic.Bool
	failing atomic.Bool // the handler fails, and its messages are tried again
	billed  atomic.Int64

	mu     sync.Mutex
	orders []string // that were billed
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
		app.Consume("order", "billing", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
			if s.failing.Load() {
				return errors.New("not now " + hostile)
			}
			if s.broken.Load() {
				return messaging.Permanent(errors.New("unknown currency " + hostile))
			}
			s.billed.Add(1)
			var placed orderPlaced
			err := json.Unmarshal(m.Payload, &placed)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.orders = append(s.orders, placed.Order)
			return err
		}))
		return app, nil
	})
	return s
}

// place announces an order, in the order of its changes.
func (s *shop) place(order string) {
	s.t.Helper()
	s.placeWith(order, event.WithOrderingKey(order))
}

func (s *shop) placeWith(order string, opts ...event.AddOption) {
	s.t.Helper()
	s.placeAt("order", order, opts...)
}

// placeAt announces an order at a topic.
func (s *shop) placeAt(topic, order string, opts ...event.AddOption) {
	s.t.Helper()
	require.NoError(s.t, s.App.UoW.Do(s.t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add(topic, orderPlaced{order}, opts...)
	}))
}

// killedEvents has n events that no broker takes.
func (s *shop) killedEvents(n int) {
	s.t.Helper()
	for i := range n {
		s.FailNextPublish(messaging.Permanent(fmt.Errorf("no schema for order %d", i)))
		s.place(fmt.Sprintf("poison event %d", i))
		require.Len(s.t, s.DrainFailing(), 1)
	}
}

// killedMessages has n messages that their consumer gave up.
func (s *shop) killedMessages(n int) {
	s.t.Helper()
	s.broken.Store(true)
	for i := range n {
		s.place(fmt.Sprintf("poison message %d %s", i, strings.Repeat("x", i)))
	}
	require.Len(s.t, s.DrainFailing(), n)
	s.broken.Store(false)
}

// failingMessage stores a message that its consumer fails to handle, and a message behind it.
func (s *shop) failingMessage(order string) {
	s.t.Helper()
	s.failing.Store(true)
	s.place(order)
	s.place(order)
	require.Len(s.t, s.DrainFailing(), 1)
	s.failing.Store(false)
}

// unknownStep makes a request with the key fail in a call to another system, so that nobody knows whether
// the call was done.
func (s *shop) unknownStep(key string) {
	s.t.Helper()
	scope := idempotency.Scope{Tenant: "default", Principal: "u-17", Caller: "ann"}
	scope.Method, scope.Path, scope.Key = http.MethodPost, "/orders", key
	hash, err := s.App.Idempotency.Key(scope)
	require.NoError(s.t, err)
	claim, _, err := s.App.Idempotency.Claim(s.t.Context(), s.DB, hash, idempotency.NewFingerprint("v1"))
	require.NoError(s.t, err)
	require.ErrorIs(s.t, claim.Run(s.t.Context(), func(ctx context.Context) error {
		ctx = idempotency.WithLabel(ctx, "order o-7")
		_, err := idempotency.StepOnce(ctx, "charge", func(context.Context) (string, error) { return "", errors.New("no answer") })
		return err
	}), idempotency.ErrStepUnknown)
	require.NoError(s.t, claim.Release(s.t.Context()))
}

func (s *shop) config() *console.Config {
	return &console.Config{Outbox: s.App.Outbox, Inbox: s.App.Inbox, Idempotency: s.App.Idempotency, Title: "shop, test"}
}

// byHeader takes the actor and the rights from headers, as a proxy would set them.
func byHeader(r *http.Request) (console.Access, error) {
	rights := r.Header.Get("X-Rights")
	return console.Access{
		Actor: r.Header.Get("X-Actor"), Read: strings.Contains(rights, "read"), Act: strings.Contains(rights, "act"),
	}, nil
}

// browser sends requests as one actor.
type browser struct {
	t             *testing.T
	base          string
	actor, rights string
	headers       map[string]string
	client        *http.Client // nil: http.DefaultClient
}

// serve mounts the page below a prefix of chi.
func (s *shop) serve(cfg *console.Config) *browser {
	s.t.Helper()
	page, err := console.New(s.DB, byHeader, cfg)
	require.NoError(s.t, err)
	r := chi.NewRouter()
	r.Route("/admin", func(r chi.Router) { r.Mount("/console", page) })
	server := httptest.NewServer(r)
	s.t.Cleanup(server.Close)
	return &browser{t: s.t, base: server.URL + "/admin/console/", actor: "ann@example.com", rights: "read,act"}
}

// as returns a browser of another actor.
func (b *browser) as(actor, rights string) *browser {
	other := *b
	other.actor, other.rights = actor, rights
	return &other
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
	at     string // the address, after redirects
}

// text is the page as a person reads it.
func (a answer) text() string {
	body := strings.ReplaceAll(a.body, "<wbr>", "") // a place where a line may end
	return strings.Join(strings.Fields(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, " "))), " ")
}

func (b *browser) do(r *http.Request) answer {
	b.t.Helper()
	r.Header.Set("X-Actor", b.actor)
	r.Header.Set("X-Rights", b.rights)
	for name, value := range b.headers {
		r.Header.Set(name, value)
	}
	resp, err := cmp.Or(b.client, http.DefaultClient).Do(r)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return answer{resp.StatusCode, resp.Header, string(body), resp.Request.URL.String()}
}

func (b *browser) get(page string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.base+page, http.NoBody)
	require.NoError(b.t, err)
	return b.do(r)
}

func (b *browser) post(page string, form url.Values) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.base+page, strings.NewReader(form.Encode()))
	require.NoError(b.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

// page gets a page that must exist.
func (b *browser) page(page string) answer {
	b.t.Helper()
	a := b.get(page)
	require.Equal(b.t, http.StatusOK, a.status, "%s: %s", page, a.text())
	return a
}

var input = regexp.MustCompile(`<(?:input|button)[^>]*name="([^"]*)"[^>]*value="([^"]*)"`)

// form reads the fields of the forms of a page.
func (a answer) form() url.Values {
	form := url.Values{}
	for _, m := range input.FindAllStringSubmatch(a.body, -1) {
		form.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	return form
}

// links returns the addresses on a page that begin with a text.
func (a answer) links(begin string) (links []string) {
	for _, m := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		if href := html.UnescapeString(m[1]); strings.HasPrefix(href, begin) {
			links = append(links, href)
		}
	}
	return links
}
