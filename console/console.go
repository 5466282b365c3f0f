package console

import (
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/skin"
	"github.com/oncebox/oncebox/console/internal/token"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/internal/once"
	"github.com/oncebox/oncebox/internal/quietlog"
)

// maxBody is the largest form in bytes: it fits the largest payload, escaped.
const maxBody = 8 << 20

//go:embed assets templates
var files embed.FS

// Console is the operators' web page. It is an http.Handler, safe for concurrent use.
type Console struct {
	db        *bun.DB
	cfg       Config
	authorize Authorizer
	tokens    *token.Tokens
	origin    *http.CrossOriginProtection
	skin      *skin.Skin
	routes    map[string]route // by HTTP method and page name
	log       *slog.Logger
}

// route is the function that answers one method on one page.
type route struct {
	// act is true if the function changes something.
	act bool
	// live is true for a page that loads itself again, unless it shows a form: see visit.still.
	live  bool
	serve func(*visit) error
}

// New makes the page for the tables that the stores of cfg use, in db. It returns an error if authorize is nil or a field of cfg cannot be used. It
// does not access the database.
func New(db *bun.DB, authorize Authorizer, cfg *Config) (*Console, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	var errs []error
	if db == nil {
		errs = append(errs, errors.New("db is nil: give the pool that the stores have, as config.OpenDB opens it"))
	}
	if authorize == nil {
		errs = append(errs, errors.New("authorize is nil: say who may see and change what, with a console.Authorizer"))
	}
	if err := errors.Join(append(errs, cfg.Validate())...); err != nil {
		return nil, fmt.Errorf("console: New: %w", err)
	}
	// Each failure has an id on the page, and the actor looks for it in the log. So no record may be left out, even if the logger thins out equal ones.
	c := &Console{db: db, cfg: cfg.WithDefaults(), authorize: authorize, origin: http.NewCrossOriginProtection(), log: quietlog.Every(cfg.logger())}
	secret := c.cfg.Secret
	if len(secret) == 0 {
		secret = []byte(rand.Text() + rand.Text())
	}
	c.tokens = token.New(secret)
	var err error
	if c.skin, err = skin.Read(files, words.Funcs()); err != nil {
		return nil, fmt.Errorf("console: New: %w", err)
	}
	c.routes = c.makeRoutes()
	return c, nil
}

// makeRoutes registers only pages whose store is configured. The menu is made from the routes, so it never links to a page that answers with 404.
func (c *Console) makeRoutes() map[string]route {
	routes := map[string]route{
		"GET ":        {serve: showOverview, live: true},
		"GET stuck":   {serve: showStuck, live: true},
		"GET audit":   {serve: showAudit, live: true},
		"GET refresh": {serve: switchRefresh},
	}
	for _, name := range c.skin.Files() {
		routes["GET "+name] = route{serve: sendFile}
	}
	if c.cfg.Outbox != nil || c.cfg.Inbox != nil {
		routes["GET "+pageProcesses] = route{serve: showProcesses, live: true}
		routes["GET "+causes.ListPage] = route{serve: showFailures, live: true}
		routes["GET "+causes.Page] = route{serve: showFailure, live: true}
		routes["POST "+causes.Page] = route{act: true, serve: markFailure}
		routes["GET dead"] = route{serve: showDead, live: true}
		routes["GET letter"] = route{serve: showLetter}
		routes["GET event"] = route{serve: showEvent, live: true}
		routes["GET search"] = route{serve: showSearch}
		routes["GET decide"] = route{act: true, serve: askWhy}
		routes["POST decide"] = route{act: true, serve: decide}
		routes["GET confirm"] = route{act: true, serve: showConfirm}
		routes["POST confirm"] = route{act: true, serve: showConfirm}
		routes["POST act"] = route{act: true, serve: actOn}
		routes["GET edit"] = route{act: true, serve: showEdit}
		routes["POST edit"] = route{act: true, serve: replayEdited}
		routes["GET bulk"] = route{act: true, serve: askBulk}
		routes["POST bulk"] = route{act: true, serve: runBulk}
	}
	if c.cfg.Outbox != nil {
		routes["GET delayed"] = route{serve: showDelayed, live: true}
		routes["GET tenants"] = route{serve: showTenants, live: true}
		routes["POST tenants"] = route{act: true, serve: changeTenant}
	}
	if c.cfg.Inbox != nil {
		routes["GET "+pageConsumers] = route{serve: showConsumers, live: true}
		routes["GET "+consumer.Page] = route{serve: showConsumer, live: true}
		routes["POST "+pageConsumers] = route{act: true, serve: changeConsumer}
	}
	if c.cfg.Idempotency != nil {
		routes["GET keys"] = route{serve: showKeys, live: true}
		routes["POST keys"] = route{act: true, serve: resolveKey}
	}
	return routes
}

// ServeHTTP answers a request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	v := &visit{Console: c, Request: r, w: w, now: time.Now()}
	var err error
	if v.access, err = c.ask(r); err != nil {
		v.refuse(err)
		return
	}
	// The Authorizer was asked before this redirect: a stranger does not even learn which folder the page is in.
	name, slash := pageName(r)
	if !slash {
		v.redirect(name + "/")
		return
	}
	v.name = name
	if err := v.serve(); err != nil {
		v.fail(err)
	}
}

// serve answers a request of an actor who may read.
func (v *visit) serve() error {
	method := v.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	rt, found := v.routes[method+" "+v.name]
	if !found {
		if _, other := v.routes[otherMethod(method)+" "+v.name]; other {
			return &problem{http.StatusMethodNotAllowed, "This page is not asked like this", "Go back to the page that has the form."}
		}
		return &problem{http.StatusNotFound, "There is no such page", "The menu leads to all pages."}
	}
	switch {
	case rt.act && v.cfg.ReadOnly:
		return &problem{
			http.StatusForbidden, "This page is read-only", "Nothing was changed. Config.ReadOnly is set: use a page without it, or the command line.",
		}
	case rt.act && !v.access.Act:
		return &problem{http.StatusForbidden, "You may look, and not change anything", "Nothing was changed. Ask for the right to act, see console.Access."}
	}
	if method == http.MethodPost {
		if err := v.checkForm(); err != nil {
			return err
		}
	}
	v.live = rt.live
	in := v
	// Operators load these pages again and again, above all when the database is in trouble. Without a bound, requests would pile up on a database that
	// does not answer.
	if method == http.MethodGet && slices.Contains([]string{"", pageStuck, pageSearch, pageConsumers, consumer.Page}, v.name) {
		within, cancel := v.bounded()
		defer cancel()
		in = within
	}
	if method == http.MethodGet {
		in.Request = in.WithContext(once.With(in.Context())) // what the page and its menu both need is read once
	}
	if v.name != pageRefresh && !slices.Contains(v.skin.Files(), v.name) {
		in.count()
		v.counts = in.counts
	}
	return rt.serve(in)
}

func otherMethod(method string) string {
	if method == http.MethodGet {
		return http.MethodPost
	}
	return http.MethodGet
}

// checkForm checks that the actor has sent the form on purpose, from a page that was shown to this actor.
func (v *visit) checkForm() error {
	if err := v.origin.Check(v.Request); err != nil {
		return &problem{http.StatusForbidden, "The form comes from another site", "Nothing was changed. " + err.Error() + "."}
	}
	// The bound holds before the form is parsed, so a huge body cannot fill the memory.
	v.Body = http.MaxBytesReader(v.w, v.Body, maxBody)
	if err := v.ParseForm(); err != nil {
		return &problem{http.StatusBadRequest, "The form cannot be read", "Nothing was changed: " + err.Error() + "."}
	}
	if err := v.tokens.Check(v.PostForm.Get(tokenField), v.access.Actor, v.now); err != nil {
		return &problem{
			http.StatusForbidden, "The form is not valid any more",
			"Nothing was changed: " + err.Error() + ". Load the page with the form again and send it from there.",
		}
	}
	return nil
}

// pageName returns the last part of the path. All pages are in one folder and link to each other by name alone, so the handler does not need to know
// where it is mounted. slash is false if the folder was requested without its slash at the end: links would then lead out of the folder.
func pageName(r *http.Request) (name string, slash bool) {
	below := r.URL.Path
	if rc := chi.RouteContext(r.Context()); rc != nil && rc.RoutePath != "" {
		below = rc.RoutePath // set by chi.Mount
	}
	asked := r.URL.Path // the path before http.StripPrefix has shortened it
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		asked = u.Path
	}
	if (below == "" || below == "/") && !strings.HasSuffix(asked, "/") {
		return path.Base(asked), false
	}
	return below[strings.LastIndexByte(below, '/')+1:], true
}

// policy is the Content-Security-Policy. It permits only the page's own stylesheet, icon and forms, and no script at all.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers that every answer has.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// With no-referrer, browsers send "Origin: null" with a form. The check of the form's origin would then refuse it.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Cache-Control", "no-store")
}

// sendFile sends the stylesheet or the icon.
func sendFile(v *visit) error {
	v.skin.Send(v.w, v.name, v.URL.Query().Get("v"))
	return nil
}
