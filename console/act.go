package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// Fields of the forms.
const (
	fieldAction = "action"
	fieldReason = "reason"
	fieldBack   = "back"
)

// deadLetters is what most pages are about.
const deadLetters = "dead letters"

// maxReason is how long a reason may be, in bytes: as the audit keeps it.
const maxReason = 2048

// letterAction is an action on dead letters. The action Retry is for messages that failed and are tried again, all of a selection.
type letterAction struct {
	Action                 operator.Action
	Title, Done, Explained string
	// Deletes says that it cannot be undone.
	Deletes bool
}

// Thing and Things are what it is done to.
func (d *letterAction) Thing() string {
	if d.Action == operator.Retry {
		return "message that failed"
	}
	return "dead letter"
}

func (d *letterAction) Things() string {
	if d.Action == operator.Retry {
		return "messages that failed"
	}
	return deadLetters
}

// letterActionOf returns the action of this name, with its texts.
func letterActionOf(action string) (*letterAction, error) {
	switch operator.Action(action) {
	case operator.Replay:
		return &letterAction{
			Action: operator.Replay, Title: "Replay", Done: "replayed",
			Explained: "An event is published, and a message is handled, after all: before all others that wait under its key, " +
				"and with all its attempts. Mend the cause first, or it dies again.",
		}, nil
	case operator.Discard:
		return &letterAction{
			Action: operator.Discard, Title: "Discard", Done: "discarded", Deletes: true,
			Explained: "It is deleted for good: nobody will ever get it. What waits behind it under its key goes on without it.",
		}, nil
	case operator.Retry:
		return &letterAction{
			Action: operator.Retry, Title: "Retry now", Done: "retried",
			Explained: "The messages are handled at once, and not only when their pauses are over. What waits behind them under their keys follows.",
		}, nil
	default:
		return nil, fmt.Errorf("action: %q is none of replay, discard and retry", action)
	}
}

// actView is the page that asks for a reason before something is done.
type actView struct {
	Act    *letterAction
	Refs   []ref
	Reason string
	// Wrong says what is missing, "" at first.
	Wrong string
	// Back is the query of the list that the actor came from.
	Back string
}

// BackTo is the address of the list that the actor came from.
func (a *actView) BackTo() string { return "dead?" + a.Back }

// order is a form, or an address that leads to one: what is to be done, with what, and why.
type order struct {
	act    *letterAction
	refs   []ref
	reason string
	back   string
}

func orderOf(c *Console, q url.Values) (o order, err error) {
	if o.act, err = letterActionOf(q.Get(fieldAction)); err != nil {
		return o, err
	}
	if o.act.Action == operator.Retry {
		return o, fmt.Errorf("action: %s is for messages that are tried again, and not for dead letters", o.act.Action)
	}
	if o.refs, err = refsOf(c, q); err != nil {
		return o, err
	}
	o.reason, o.back = strings.TrimSpace(q.Get(fieldReason)), q.Get(fieldBack)
	if o.back == "" && len(o.refs) > 0 { // from a page about one of them
		o.back = url.Values{fieldBox: {string(o.refs[0].Box)}}.Encode()
	}
	return o, nil
}

// showConfirm shows what is about to be done to single dead letters, and asks for the reason.
func showConfirm(v *visit) error {
	q := v.URL.Query()
	if v.Method == http.MethodPost {
		q = v.PostForm
	}
	o, err := orderOf(v.Console, q)
	if err != nil {
		return invalid(err)
	}
	if len(o.refs) == 0 {
		return &problem{http.StatusUnprocessableEntity, "Nothing is selected", "Go back and tick the dead letters that you mean."}
	}
	return v.show("confirm", o.act.Title, &actView{Act: o.act, Refs: o.refs, Back: o.back})
}

// actOn does what was confirmed, one dead letter after the other, each in a transaction of its own.
func actOn(v *visit) error {
	o, err := orderOf(v.Console, v.PostForm)
	if err != nil {
		return invalid(err)
	}
	if wrong := reasonProblem(o.reason); wrong != "" || len(o.refs) == 0 {
		view := &actView{Act: o.act, Refs: o.refs, Reason: o.reason, Wrong: wrong, Back: o.back}
		return v.write(http.StatusUnprocessableEntity, "confirm", v.page(o.act.Title, view))
	}
	done := 0
	var failures []detail
	for _, r := range o.refs {
		if err := v.view().Dead().Act(v.Context(), o.act.Action, r.LetterRef, v.by(o.reason)); err != nil {
			failures = append(failures, detail{r.ID, v.tell(err)})
			continue
		}
		done++
	}
	v.log.InfoContext(v.Context(), "oncebox: dead letters were treated on the console", "actor", v.access.Actor, "action", o.act.Action,
		"done", done, "failed", len(failures))
	if len(failures) > 0 {
		view := &outcome{Act: o.act, Done: done, Failures: failures, Back: backTo(v, o.back, nil)}
		return v.write(http.StatusConflict, "outcome", v.page(o.act.Title, view))
	}
	said := url.Values{fieldDone: {string(o.act.Action)}, "n": {strconv.Itoa(done)}}
	if done == 1 {
		said.Set(fieldOf, o.refs[0].ID)
	}
	v.redirect(backTo(v, o.back, said))
	return nil
}

// outcome is the page that says what was done and what was not.
type outcome struct {
	Act      *letterAction
	Done     int
	Failures []detail
	Back     string
}

// Returns the text for the actor why one of several could not be treated. Errors that do not concern operators are logged.
func (v *visit) tell(err error) string {
	if p, known := errors.AsType[*problem](explained(err)); known {
		return p.title
	}
	v.log.ErrorContext(v.Context(), "oncebox: the console could not treat a dead letter", "error", err)
	return "An error, which the log of this process has. Nothing was changed."
}

// reasonProblem says what is wrong with a reason, "" if nothing is.
func reasonProblem(reason string) string {
	switch {
	case reason == "":
		return "Say why: the reason stays in the audit."
	case len(reason) > maxReason:
		return fmt.Sprintf("The reason has %d bytes, and the audit keeps %d.", len(reason), maxReason)
	default:
		return ""
	}
}

// Fields of the address of a page that says what was done: the action, and the one event that it was done to.
const (
	fieldDone = "done"
	fieldOf   = "of"
)

// backTo returns the address of the list with a query that came through a form, and more parameters.
func backTo(v *visit, back string, more url.Values) string {
	q, err := url.ParseQuery(back)
	if err != nil {
		q = url.Values{}
	}
	s, err := selected(v.Console, q, v.now)
	if err != nil {
		s = boxOf(ops.Box(q.Get(fieldBox)))
	}
	return "dead?" + with(s.Values(), more).Encode()
}

// lifeOf is the address of the page about the event that something was done to on the page before, "" if it was done to several.
func lifeOf(q url.Values) string {
	if id := q.Get(fieldOf); uuid.Validate(id) == nil {
		return eventPage(id, "")
	}
	return ""
}

// notice says what was done on the page before.
func notice(q url.Values) string {
	d, err := letterActionOf(q.Get(fieldDone))
	if err != nil {
		return ""
	}
	n, err := strconv.ParseInt(q.Get("n"), 10, 64)
	if err != nil {
		return ""
	}
	return counted(n, "dead letter was ", "dead letters were ") + d.Done + "."
}

const fieldPayload = "payload"

// editView is the page on which the payload of one dead letter is changed before it is replayed.
type editView struct {
	letter

	Text   string
	Reason string
	Wrong  string
}

// showEdit shows the payload of a dead letter for editing.
func showEdit(v *visit) error {
	view, err := editOf(v, v.URL.Query())
	if err != nil {
		return err
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, view.Envelope.Payload, "", "  ") == nil {
		view.Text = pretty.String()
	}
	return v.show("edit", "Edit and replay", view)
}

// editOf reads the dead letter that is named. Its payload has to be text.
func editOf(v *visit, q url.Values) (*editView, error) {
	r, err := refOf(v.Console, q)
	if err != nil {
		return nil, invalid(err)
	}
	l, err := readLetter(v, r)
	if err != nil {
		return nil, explained(err)
	}
	payload := l.Envelope.Payload
	if !utf8.Valid(payload) || bytes.ContainsRune(payload, 0) || len(payload) > maxShown {
		return nil, &problem{
			http.StatusUnprocessableEntity, "This payload cannot be edited here",
			fmt.Sprintf("It is no text, or has more than %s bytes: it may be encrypted or compressed.", group(maxShown)),
		}
	}
	return &editView{letter: l, Text: string(payload)}, nil
}

// replayEdited replays a dead letter with another payload.
func replayEdited(v *visit) error {
	form := v.PostForm
	q, err := url.ParseQuery(form.Get("ref"))
	if err != nil {
		return invalid(err)
	}
	view, err := editOf(v, q)
	if err != nil {
		return err
	}
	// Browsers end the lines of a text with two characters.
	view.Text, view.Reason = strings.ReplaceAll(form.Get(fieldPayload), "\r\n", "\n"), strings.TrimSpace(form.Get(fieldReason))
	if view.Wrong = payloadProblem(view); view.Wrong == "" {
		view.Wrong = reasonProblem(view.Reason)
	}
	if view.Wrong != "" {
		return v.write(http.StatusUnprocessableEntity, "edit", v.page("Edit and replay", view))
	}
	err = v.view().Dead().ReplayEdited(v.Context(), view.Ref.LetterRef, []byte(view.Text), v.by(view.Reason))
	if err != nil {
		return explained(err)
	}
	v.log.InfoContext(v.Context(), "oncebox: a dead letter was edited and replayed on the console", "actor", v.access.Actor, "ref", view.Ref.String())
	v.redirect("dead?" + url.Values{fieldBox: {string(view.Ref.Box)}, fieldDone: {string(operator.Replay)}, "n": {"1"}, fieldOf: {view.Ref.ID}}.Encode())
	return nil
}

// payloadProblem says what is wrong with an edited payload, "" if nothing is.
func payloadProblem(view *editView) string {
	switch {
	case view.Text == "":
		return "The payload is empty."
	case json.Valid(view.Envelope.Payload) && !json.Valid([]byte(view.Text)):
		var into any
		return "The payload was JSON and is not any more: " + json.Unmarshal([]byte(view.Text), &into).Error() + "."
	default:
		return ""
	}
}
