package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/skin"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// Names of pages that other pages link to.
const (
	pageStuck   = frame.Stuck
	pageDead    = "dead"
	pageDelayed = "delayed"
	pageEvent   = "event"
	pageKeys    = "keys"
	pageTenants = frame.Tenants
	// pageConsumers lists the consumers.
	pageConsumers = frame.Consumers
	// pageProcesses lists what runs.
	pageProcesses = frame.Processes
	pageAudit     = "audit"
	pageSearch    = "search"
	pageRefresh   = "refresh"
)

// titleConsumers is the title of the page of consumers, and the name of their part in lists.
const titleConsumers = "Consumers"

// tokenField is the name of the form field with the token.
const tokenField = "token"

// visit is one request of an actor who may read.
type visit struct {
	*Console
	*http.Request

	w      http.ResponseWriter
	name   string // name of the page
	access Access
	now    time.Time

	// live is true if the page loads itself again. still is true if it has a form to fill in: what was typed or ticked would be lost.
	live, still bool
	// counts has the numbers of the menu, as soon as they are read. nil: the page has none.
	counts chan counts
}

// counts are the numbers of the menu, or why they could not be read.
type counts struct {
	ops.Menu

	err error
}

// by returns the actor and the reason, for the audit.
func (v *visit) by(reason string) operator.By {
	return operator.By{Actor: v.access.Actor, Reason: reason}
}

// problem is an error for the actor: what happened, and what to do.
type problem struct {
	status      int
	title, text string
}

func (p *problem) Error() string { return p.title + ": " + p.text }

// invalid returns the problem for a request whose parameters cannot be used.
func invalid(err error) error {
	return &problem{http.StatusBadRequest, "The request cannot be used", err.Error()}
}

// page is the data of the layout.
type page struct {
	Title   string
	Site    string
	Current string
	Nav     []menuItem
	Search  bool // the console has a search
	Actor   string
	Act     bool
	Token   string
	Live    *frame.Live // nil: the page never loads itself again
	Style   string
	Icon    string
	Now     time.Time
	Body    any
}

type link struct{ Name, Href, Class string }

// menuItem is a link of the menu. Count is how many things its page has, "" for none, and State the class of that number.
type menuItem struct {
	link

	Count, State string
}

func (v *visit) page(title string, body any) *page {
	p := &page{
		Title: title, Site: v.cfg.Title, Current: v.name, Nav: v.menu(), Actor: v.access.Actor, Act: v.access.Act, Live: v.liveness(),
		Style: v.skin.Href(skin.Stylesheet), Icon: v.skin.Href(skin.Icon), Now: v.now, Body: body,
	}
	_, p.Search = v.routes["GET "+pageSearch]
	// Actors who may only read get no token, so no form that they are shown can be sent.
	if v.access.Act {
		p.Token = v.tokens.Make(v.access.Actor, v.now)
	}
	return p
}

// liveness returns how the page loads itself again; nil: it does not.
func (v *visit) liveness() *frame.Live {
	if !v.live || v.still || v.cfg.Refresh < 0 {
		return nil
	}
	return frame.NewLive(v.Request, v.name, pageRefresh, v.cfg.Refresh, fieldDone, fieldNumber, fieldOf)
}

// switchRefresh turns the loading of pages off or on for this browser, and goes back to the page.
func switchRefresh(v *visit) error {
	page, q := frame.Switch(v.w, v.Request)
	if rt, found := v.routes["GET "+page]; !found || !rt.live {
		page, q = "", nil
	}
	v.redirect(frame.Address(page, q))
	return nil
}

// filter returns the form of a list with these fields. all are the fields of the whole list.
func (v *visit) filter(fields, all url.Values) frame.Filter {
	f := frame.NewFilter(v.name, v.URL.Query(), fields, all)
	v.still = v.still || f.Open
	return f
}

// menu returns the links to the pages that this console has, with their numbers.
func (v *visit) menu() (items []menuItem) {
	n := v.numbers()
	current := cmp.Or(map[string]string{"letter": pageDead, causes.Page: causes.ListPage, consumer.Page: pageConsumers}[v.name], v.name)
	for _, item := range []struct {
		name, page, state string
		count             int
	}{
		{"Overview", "", "", 0}, {"Stuck", pageStuck, stateWarn, n.Stuck}, {"Failures", causes.ListPage, "", 0}, {"Dead letters", pageDead, stateBad, n.Dead()},
		{"Delayed", pageDelayed, statePlain, n.Delayed}, {titleKeys, pageKeys, stateBad, n.UnknownSteps},
		{"Tenants", pageTenants, stateWarn, n.TenantsPaused}, {titleConsumers, pageConsumers, stateWarn, n.ConsumersPaused},
		{"Processes", pageProcesses, "", 0}, {"Audit", pageAudit, "", 0},
	} {
		if _, found := v.routes["GET "+item.page]; !found {
			continue
		}
		m := menuItem{link: link{Name: item.name, Href: item.page}, State: item.state}
		if item.count > 0 {
			m.Count = menuCount(item.count)
		}
		if item.page == current {
			m.Class = classCurrent
		}
		if item.page == "" {
			m.Href = "./"
		}
		items = append(items, m)
	}
	return items
}

// menuCount formats a number of the menu.
func menuCount(n int) string {
	if n > ops.Counted {
		return words.Group(ops.Counted) + "+"
	}
	return words.Group(int64(n))
}

// countWithin is how long a page waits for the numbers of its menu. It is shown without them if the database takes longer.
const countWithin = 3 * time.Second

// count begins to read the numbers of the menu, beside what the page itself reads.
func (v *visit) count() {
	read := make(chan counts, 1)
	v.counts = read
	go func() {
		ctx, cancel := context.WithTimeout(v.Context(), countWithin)
		defer cancel()
		n, err := v.view().Menu(ctx)
		// If the database does not answer, the page says so itself.
		if err != nil && ctx.Err() == nil && !pgerr.IsConnectionError(err) {
			v.log.ErrorContext(ctx, "oncebox: the console could not read the numbers of its menu", "error", err)
		}
		read <- counts{n, err}
	}()
}

// numbers waits for the numbers of the menu. It may be called several times.
func (v *visit) numbers() (n counts) {
	if v.counts != nil {
		n = <-v.counts
		v.counts <- n
	}
	return n
}

// show writes a page. It renders the whole page before it sends the first byte, so that an error does not end in the middle of a page.
func (v *visit) show(name, title string, body any) error {
	return v.write(http.StatusOK, name, v.page(title, body))
}

func (v *visit) write(status int, name string, p *page) error {
	var out bytes.Buffer
	if err := v.skin.Page(&out, name, p); err != nil {
		return fmt.Errorf("console: make the page %s: %w", name, err)
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(out.Bytes())
	return nil
}

// redirect sends the browser to a page, or to another address that is relative to this one. http.Redirect would make it absolute, with
// a path that a proxy or http.StripPrefix has changed.
func (v *visit) redirect(to string) {
	v.w.Header().Set("Location", to)
	v.w.WriteHeader(http.StatusSeeOther)
}

// refuse answers a request that is not permitted, without details.
func (v *visit) refuse(err error) {
	if errors.Is(err, errRefused) {
		http.Error(v.w, "You have no access to this page.", http.StatusForbidden)
		return
	}
	v.log.ErrorContext(v.Context(), "oncebox: the Authorizer of the console failed, the request was answered with 503", "error", err)
	http.Error(v.w, "It could not be found out who you are. The log of this process says why.", http.StatusServiceUnavailable)
}

// fail shows a problem. Of other errors it shows only an id, under which the log has them.
func (v *visit) fail(err error) {
	p, known := errors.AsType[*problem](err)
	switch {
	case v.Context().Err() != nil && !known:
		return // the browser has left, which may be the only cause of the error
	case !known:
		id := rand.Text()[:10]
		v.log.ErrorContext(v.Context(), "oncebox: the console could not answer", "page", v.name, "id", id, "error", err)
		p = unanswered(err, id)
	}
	// A page that a mistake in the address made stays as it is. A database may answer again soon, so that page is loaded again.
	v.still = v.still || p.status < http.StatusInternalServerError
	if err := v.write(p.status, "problem", v.page(p.title, strings.TrimSpace(p.text))); err != nil {
		v.log.ErrorContext(v.Context(), "oncebox: the console could not answer", "error", err)
	}
}

// unanswered returns the problem for a failed request whose error is in the log under an id.
func unanswered(err error, id string) *problem {
	why := "The log of this process says why, under the id " + id + ". "
	// Without a database the program is fine and may answer again soon, hence 503 and not 500.
	if pgerr.IsConnectionError(err) || errors.Is(err, context.DeadlineExceeded) {
		return &problem{
			http.StatusServiceUnavailable, "The database does not answer",
			why + "Nothing can be shown before this process reaches its database again. Whether it answers elsewhere is shown there by: oncebox status",
		}
	}
	return &problem{http.StatusInternalServerError, "This could not be answered", why + "Try again when the cause is mended."}
}

// lookWithin is how long the overview and similar pages may take. None of their statements reads more rows when more events wait, so a slow answer
// means trouble: a database that has vanished does not answer at all.
const lookWithin = 15 * time.Second

// bounded returns a copy of the visit whose context ends after lookWithin.
func (v *visit) bounded() (*visit, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(v.Context(), lookWithin)
	within := *v
	within.Request = v.Request.WithContext(ctx)
	return &within, cancel
}
