package analysis

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// Track finds aggregates that record events inside a unit of work and are never given to the unit, so that
// their events are lost.
var Track = &analysis.Analyzer{ //nolint:gochecknoglobals // analyzers are variables
	Name:      "unittrack",
	Doc:       "finds aggregates that have recorded events within a unit of work, and that are neither tracked nor saved",
	Requires:  []*analysis.Analyzer{inspect.Analyzer},
	FactTypes: []analysis.Fact{(*records)(nil)},
	Run:       runTrack,
}

// records is a fact about a function: it records events on its receiver, or on its first result. Facts are how the
// analyzer knows functions of other packages.
type records struct{}

// AFact implements [analysis.Fact].
func (*records) AFact() {}

func (*records) String() string { return "records" }

func runTrack(pass *analysis.Pass) (any, error) {
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector) //nolint:forcetypeassert // what inspect returns
	for exportRecords(pass, in) {                                // again, until no further function calls a known one
	}
	units(pass, in, func(body *ast.BlockStmt) {
		for object, at := range recorded(pass, body) {
			if isLeftAlone(pass.TypesInfo, body, object) {
				pass.Reportf(at,
					"%s has recorded events, and no unit of work knows: call u.Save(ctx, %[1]s) or u.Track(%[1]s), or its events are lost", object.Name())
			}
		}
	})
	return nil, nil //nolint:nilnil // an analyzer without a result
}

// exportRecords looks for functions that record events, and reports whether it has found a new one.
func exportRecords(pass *analysis.Pass, in *inspector.Inspector) (more bool) {
	in.Preorder([]ast.Node{(*ast.FuncDecl)(nil)}, func(n ast.Node) {
		decl, ok := n.(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			return
		}
		fn, ok := pass.TypesInfo.Defs[decl.Name].(*types.Func)
		if !ok || pass.ImportObjectFact(fn, new(records)) {
			return
		}
		found := recorded(pass, decl.Body)
		object := returned(pass.TypesInfo, decl.Body)
		if decl.Recv != nil && len(decl.Recv.List) == 1 && len(decl.Recv.List[0].Names) == 1 {
			object = pass.TypesInfo.Defs[decl.Recv.List[0].Names[0]]
		}
		if _, does := found[object]; does && object != nil {
			pass.ExportObjectFact(fn, new(records))
			more = true
		}
	})
	return more
}

// returned returns the variable that is the first result at every return of the function; nil if they differ.
func returned(info *types.Info, body *ast.BlockStmt) (object types.Object) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if len(n.Results) == 0 {
				return true
			}
			if one := variable(info, n.Results[0]); one != nil {
				object = one
			}
		}
		return true
	})
	return object
}

// recorded returns the variables of a body on which events are recorded, with the place of the first recording.
func recorded(pass *analysis.Pass, body *ast.BlockStmt) map[types.Object]token.Pos {
	found := map[types.Object]token.Pos{}
	note := func(e ast.Expr, at token.Pos) {
		object := variable(pass.TypesInfo, e)
		if _, known := found[object]; object != nil && !known {
			found[object] = at
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			selector, ok := n.Fun.(*ast.SelectorExpr)
			if ok && (isMethod(pass.TypesInfo, n, eventPath, "Recorder", "Record") || hasFact(pass, n, true)) {
				note(selector.X, n.Pos())
			}
		case *ast.AssignStmt:
			if call, ok := ast.Unparen(n.Rhs[0]).(*ast.CallExpr); ok && len(n.Rhs) == 1 && hasFact(pass, call, false) {
				note(n.Lhs[0], n.Pos())
			}
		}
		return true
	})
	return found
}

// hasFact reports whether the call is of a function, or of a method, that records events.
func hasFact(pass *analysis.Pass, call *ast.CallExpr, method bool) bool {
	fn, ok := typeutil.Callee(pass.TypesInfo, call).(*types.Func)
	return ok && (fn.Signature().Recv() != nil) == method && pass.ImportObjectFact(fn.Origin(), new(records))
}

// variable returns the variable that an expression names: o, &o, o.Recorder.
func variable(info *types.Info, e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if object, ok := info.ObjectOf(e).(*types.Var); ok {
			return object
		}
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return variable(info, e.X)
		}
	case *ast.SelectorExpr:
		if isNamed(info.TypeOf(e), eventPath, "Recorder") {
			return variable(info, e.X)
		}
	}
	return nil
}

// isLeftAlone reports whether the variable is declared in the body and is only used for calls of its methods, for its
// fields and as a model of bun. Any other use may lead to the unit: it is passed to a function, stored, returned, or
// captured by a function literal that is.
func isLeftAlone(info *types.Info, body *ast.BlockStmt, object types.Object) bool {
	if object.Pos() < body.Pos() || object.Pos() > body.End() {
		return false
	}
	alone := true
	var stack []ast.Node
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		ident, ok := n.(*ast.Ident)
		if !ok || info.ObjectOf(ident) != object {
			return true
		}
		parent, at := stack[len(stack)-2], ast.Expr(ident)
		if address, ok := parent.(*ast.UnaryExpr); ok && address.Op == token.AND {
			parent, at = stack[len(stack)-3], address
		}
		switch parent := parent.(type) {
		case *ast.CallExpr: // an argument of bun, which stores it
			alone = alone && at != parent.Fun && isOfBun(info, parent)
		case *ast.SelectorExpr: // a call of a method, or a field
			if _, isFunc := info.ObjectOf(parent.Sel).(*types.Func); isFunc && !callKeepsIt(info, stack, parent) {
				alone = false
			}
		case *ast.AssignStmt:
			for _, right := range parent.Rhs {
				alone = alone && right != ast.Expr(ident)
			}
		case *ast.ValueSpec:
			for _, right := range parent.Values {
				alone = alone && right != ast.Expr(ident)
			}
		case *ast.BinaryExpr: // a comparison
		default:
			alone = false
		}
		return true
	})
	return alone
}

// callKeepsIt reports whether the selector is a call of a method that cannot give its receiver to the unit. A method
// that could do so has the unit or a context among its arguments.
func callKeepsIt(info *types.Info, stack []ast.Node, selector *ast.SelectorExpr) bool {
	call, ok := stack[len(stack)-3].(*ast.CallExpr)
	if !ok || call.Fun != ast.Expr(selector) {
		return false // the method is used as a value, and may be called anywhere
	}
	for _, arg := range call.Args {
		if t := info.TypeOf(arg); isNamed(t, uowPath, "Unit") || isNamed(t, "context", "Context") {
			return false
		}
	}
	return true
}
