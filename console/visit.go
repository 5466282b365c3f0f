package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/operator"
)

// Names of pages that other pages link to.
const (
	pageStuck   = "stuck"
	pageDelayed = "delayed"
	pageTenants = "tenants"
)

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
	Nav     []link
	Actor   string
	Act     bool
	Token   string
	Refresh int // seconds until the page loads itself again; 0: never
	Style   string
	Icon    string
	Now     time.Time
	Body    any
}

type link struct{ Name, Href, Class string }

func (v *visit) page(title string, body any) *page {
	p := &page{
		Title: title, Site: v.cfg.Title, Current: v.name, Actor: v.access.Actor, Act: v.access.Act,
		Style: v.assetHref(stylesheet), Icon: v.assetHref(icon), Now: v.now, Body: body,
	}
	for _, l := range []link{
		{"Overview", "", ""}, {"Stuck", pageStuck, ""}, {"Dead letters", "dead", ""}, {"Delayed", pageDelayed, ""}, {"Event", "event", ""},
		{"Keys", "keys", ""}, {"Tenants", pageTenants, ""}, {"Audit", "audit", ""},
	} {
		if _, found := v.routes["GET "+l.Href]; !found {
			continue
		}
		if l.Href == v.name || v.name == "letter" && l.Href == "dead" {
			l.Class = classCurrent
		}
		if l.Href == "" {
			l.Href = "./"
		}
		p.Nav = append(p.Nav, l)
	}
	// Actors who may only read get no token, so no form that they are shown can be sent.
	if v.access.Act {
		p.Token = v.tokens.make(v.access.Actor, v.now)
	}
	return p
}

// show writes a page. It renders the whole page before it sends the first byte, so that an error does not end in the middle of a page.
func (v *visit) show(name, title string, body any) error {
	return v.write(http.StatusOK, name, v.page(title, body))
}

func (v *visit) write(status int, name string, p *page) error {
	var out bytes.Buffer
	if err := v.templates[name].Execute(&out, p); err != nil {
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
