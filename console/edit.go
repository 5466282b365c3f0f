package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/oncebox/oncebox/operator"
)

const fieldPayload = "payload"

// editView is the page on which the payload of one dead letter is changed before it is replayed.
type editView struct {
	letter

	Text   string
	Reason string
	Wrong  string
}

// edit shows the payload of a dead letter for editing.
func (c *Console) edit(v *visit) error {
	view, err := c.editOf(v, v.URL.Query())
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
func (c *Console) editOf(v *visit, q url.Values) (*editView, error) {
	r, err := c.refOf(q)
	if err != nil {
		return nil, invalid(err)
	}
	l, err := c.readLetter(v, r)
	if err != nil {
		return nil, c.explain(err)
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
func (c *Console) replayEdited(v *visit) error {
	form := v.PostForm
	q, err := url.ParseQuery(form.Get("ref"))
	if err != nil {
		return invalid(err)
	}
	view, err := c.editOf(v, q)
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
	err = c.view().Dead().ReplayEdited(v.Context(), view.Ref.LetterRef, []byte(view.Text), v.by(view.Reason))
	if err != nil {
		return c.explain(err)
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
