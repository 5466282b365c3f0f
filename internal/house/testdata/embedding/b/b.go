package b

import (
	"net/http"

	other "github.com/oncebox/oncebox/a"
)

type wrapped struct {
	*other.Store
}

func (wrapped) own() {}

type lease struct{ *wrapped }

// held is a field of its own, and the types of other modules are theirs.
type fine struct {
	held *wrapped
	http.ResponseWriter
	other.Clock
}
