package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/facts"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/internal/seek"
	"github.com/oncebox/oncebox/ops"
)

// mostFound is how many events a search shows.
const mostFound = 50

// Fields of the address of a search.
const (
	fieldText  = "q"
	fieldUntil = "until"
)

// searchView is the data of the page of a search.
type searchView struct {
	ops.Findings

	Text string
	Rows []foundRow
	// Before is the time before which was searched. Zero: the search began with now.
	Before time.Time
	// Further is the address that goes on from where the search has come to. "": everything was searched.
	Further string
	// Lists are the lists of a tenant, if the text is one.
	Lists []link
}

// foundRow is an event that was found, with the address of its life.
type foundRow struct {
	ops.Found

	Href string
}

// showSearch searches for events. If it finds exactly one, it leads to the life of that.
func showSearch(v *visit) error {
	v.still = true // the page has a form
	q := v.URL.Query()
	view := &searchView{Text: strings.TrimSpace(q.Get(fieldText))}
	switch source := strings.TrimSpace(q.Get(fieldSource)); {
	case view.Text == "":
		return v.show(pageSearch, "Search", view)
	case source != "":
		v.redirect(frame.Event(view.Text, source))
		return nil
	}
	var err error
	if view.Before, err = ops.TimeAgo(q.Get(fieldUntil), v.now); err != nil {
		return invalid(errDamaged)
	}
	found, err := v.view().Find(v.Context(), view.Text, view.Before, mostFound)
	switch {
	case errors.Is(err, seek.ErrText):
		return &problem{http.StatusBadRequest, "This cannot be searched for", words.Upper(err.Error()) + "."}
	case err != nil:
		return err
	}
	if len(found.List) == 1 && !found.More {
		v.redirect(frame.Event(found.List[0].ID, found.List[0].Source))
		return nil
	}
	view.Findings = found
	for _, f := range found.List {
		view.Rows = append(view.Rows, foundRow{f, frame.Event(f.ID, f.Source)})
	}
	if !found.Back.IsZero() {
		view.Further = frame.Address(pageSearch, url.Values{fieldText: {view.Text}, fieldUntil: {found.Back.UTC().Format(time.RFC3339)}})
	}
	if slices.ContainsFunc(found.List, func(f ops.Found) bool { return f.Tenant == view.Text }) {
		view.Lists = listsOf(v, view.Text)
	}
	return v.show(pageSearch, "Search", view)
}

// listsOf returns links to the lists of a tenant.
func listsOf(v *visit, tenant string) (links []link) {
	for _, l := range []link{{"Stuck", pageStuck, ""}, {"Dead letters", pageDead, ""}, {"Delayed", pageDelayed, ""}} {
		if _, found := v.routes["GET "+l.Href]; found {
			links = append(links, link{l.Name, frame.Address(l.Href, url.Values{fieldTenant: {tenant}}), ""})
		}
	}
	return links
}

// eventView is the data of the page about the whole life of an event: a life for each event that has the id.
type eventView struct{ Lives []facts.Life }

// showEvent shows the whole life of an event over all tables. Without an id it asks for one.
func showEvent(v *visit) error {
	q := v.URL.Query()
	id, source := strings.TrimSpace(q.Get(fieldID)), strings.TrimSpace(q.Get(fieldSource))
	if id == "" {
		v.redirect(pageSearch)
		return nil
	}
	var sources []string
	if source != "" {
		sources = append(sources, source)
	}
	found, err := v.view().Life(v.Context(), id, sources...)
	switch {
	case errors.Is(err, ops.ErrUnknown):
		_, text, _ := strings.Cut(err.Error(), ops.ErrUnknown.Error()+"; ")
		return &problem{
			http.StatusNotFound, "Nothing is known of this event",
			strings.TrimSpace("It never was here, or it is forgotten. " + words.Upper(text) +
				". An id that is no UUID needs the source of the message as well."),
		}
	case err != nil:
		return err
	}
	view := &eventView{}
	for n := range found {
		view.Lives = append(view.Lives, facts.LifeOf(&found[n], v.cfg.TraceURL, v.now))
	}
	// Nothing changes any more in a life that is over.
	v.still = !slices.ContainsFunc(view.Lives, func(l facts.Life) bool { return l.Waits })
	return v.show(pageEvent, "Life of an event", view)
}
