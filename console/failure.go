package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
)

// showFailures lists the causes, or a part of them.
func showFailures(v *visit) error {
	list, err := v.view().Failures().List(v.Context())
	if err != nil {
		return err
	}
	q := v.URL.Query()
	limits, err := v.limits()
	if err != nil {
		return err
	}
	table, err := causes.NewTable(v.now, list, limits, q.Get(causes.FieldShow))
	if err != nil {
		return invalid(err)
	}
	if q.Get(fieldDone) == causes.Gone {
		table.Notice = goneCause + ". Its messages were handled, replayed or discarded; the audit shows what operators did. " +
			"Other types with the same error are listed here."
	}
	return v.show(causes.ListPage, "Failures", table)
}

// failureView is the data of the page of one cause.
type failureView struct {
	Of       *causes.View
	Notice   string
	Open     operator.Action // the form that is open: for a note or the archive, "" for none
	Messages []waiting       // a page of the messages that are tried again
	Pager    frame.Pager
	// Retry, Replay and Discard treat all failures of the cause. "": it has none, or the actor may look only.
	Retry, Replay, Discard string
	Letters                string // address of the list of its dead letters
	Event                  string // address of the page about the example
	Audit                  []auditRow
	Reason, Text           string // what was typed into the form
	Wrong                  string
}

// waiting is a message that is tried again.
type waiting struct {
	parked.Message

	Limit string // when it is given up
	Ref   ref
}

// Event returns the address of the page about the message.
func (w *waiting) Event() string { return frame.Event(w.Envelope.ID, w.Key.Source) }

// showFailure shows all that is known of one cause. A cause that is gone leads to the list, which says so: buttons and bookmarks still have the address.
func showFailure(v *visit) error {
	q := v.URL.Query()
	view, err := failureOf(v, q.Get(causes.Field))
	if errors.Is(err, failures.ErrUnknown) {
		v.redirect(frame.Address(causes.ListPage, url.Values{fieldDone: {causes.Gone}}))
		return nil
	}
	if err != nil {
		return err
	}
	view.Notice, view.Text = causes.Marked(q.Get(fieldDone)), view.Of.Note
	if v.access.Act {
		view.Open = operator.Action(q.Get(frame.FieldForm))
	}
	v.still = v.still || view.Open != ""
	return v.show(causes.Page, "Failures of one cause", view)
}

// goneCause is the title for a cause that another operator, or a handler, has dealt with.
const goneCause = "Nothing of this type fails for this cause any more"

// failureOf reads a cause. The error is failures.ErrUnknown if nothing fails for it, and no note is left.
func failureOf(v *visit, fingerprint string) (*failureView, error) {
	read, err := causes.Read(v.Context(), v.now, v.db, v.cfg.Outbox, v.cfg.Inbox, fingerprint)
	if err != nil {
		return nil, err
	}
	view, g := &failureView{Of: read}, &read.Group
	if x := g.Example(); x.ID != "" {
		view.Event = frame.Event(x.ID, x.Ref.Source)
	}
	if g.Dead.Count > 0 {
		view.Letters = causes.Letters(view.Of.Box(), fingerprint)
	}
	if v.access.Act && g.Failing.Count > 0 && view.Of.Box() == ops.BoxInbox {
		view.Retry = view.Of.RetryAll()
	}
	if v.access.Act && g.Dead.Count > 0 {
		view.Replay, view.Discard = causes.Bulk(operator.Replay, view.Of.Box(), fingerprint), causes.Bulk(operator.Discard, view.Of.Box(), fingerprint)
	}
	if view.Audit, err = auditRows(v, operator.AuditFilter{Part: operator.EveryPart, Fingerprint: fingerprint}, nil, perPage); err != nil {
		return nil, err
	}
	return view, readWaiting(v, view)
}

// limits returns when each consumer gives a message up.
func (v *visit) limits() (map[string]operator.Limit, error) {
	if v.cfg.Inbox == nil {
		return nil, nil
	}
	return v.cfg.Inbox.State().Limits(v.Context())
}

// readWaiting reads a page of the messages that are tried again. The lock of a key is the place in their list.
func readWaiting(v *visit, view *failureView) error {
	if view.Of.Failing.Count == 0 || view.Of.Box() != ops.BoxInbox {
		return nil
	}
	const fieldAfter = "after"
	q := v.URL.Query()
	var after *parked.Message
	if text := q.Get(fieldAfter); text != "" {
		lock, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return invalid(errDamaged)
		}
		after = &parked.Message{KeyLock: lock}
		after.Key.Consumer = view.Of.Consumer
	}
	page, err := v.cfg.Inbox.Parked().List(v.Context(), view.Of.Failed(), after, perPage+1)
	if err != nil {
		return err
	}
	var next url.Values
	if len(page) > perPage {
		page = page[:perPage]
		next = url.Values{fieldAfter: {strconv.FormatInt(page[perPage-1].KeyLock, 10)}}
	}
	for _, m := range page {
		r := ops.LetterRef{Box: ops.BoxInbox, ID: m.Key.MessageKey, Tenant: m.Key.TenantID, Consumer: m.Key.Consumer, Source: m.Key.Source}
		view.Messages = append(view.Messages, waiting{m, view.Of.LimitOf(&m), ref{r}})
	}
	view.Pager = frame.NewPager(causes.Page, q, url.Values{causes.Field: {view.Of.Fingerprint}}, len(page), next)
	if view.Pager.Of == "" {
		view.Pager.Of = menuCount(view.Of.Failing.Count)
	}
	return nil
}

// markFailure stores a note, archives a cause, or puts it back into the lists.
func markFailure(v *visit) error {
	m, err := causes.MarkOf(v.PostForm)
	if err != nil {
		return invalid(err)
	}
	wrong := m.Wrong()
	if m.NeedsReason() {
		wrong = reasonProblem(m.Reason)
	}
	if wrong != "" {
		view, err := failureOf(v, m.First())
		if err != nil {
			return gone(err)
		}
		view.Open, view.Text, view.Reason, view.Wrong = m.Action, m.Note, m.Reason, wrong
		v.still = true
		return v.write(http.StatusUnprocessableEntity, causes.Page, v.page("Failures of one cause", view))
	}
	if err := m.Store(v.Context(), v.view().Failures(), v.by(m.Reason)); err != nil {
		return gone(err)
	}
	v.log.InfoContext(v.Context(), "oncebox: a cause of failures was marked on the console", "actor", v.access.Actor, "action", m.Action,
		"fingerprint", m.Fingerprint)
	v.redirect(frame.Address(causes.Page, url.Values{causes.Field: {m.First()}, fieldDone: {string(m.Action)}}))
	return nil
}

// gone returns the problem of a form about a cause that is gone, and other errors as they are.
func gone(err error) error {
	if errors.Is(err, failures.ErrUnknown) {
		return &problem{http.StatusConflict, goneCause, lookAgain}
	}
	return err
}
