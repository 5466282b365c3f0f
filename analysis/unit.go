package analysis

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

const (
	uowPath   = "github.com/oncebox/oncebox/uow"
	eventPath = "github.com/oncebox/oncebox/event"
)

// units calls fn for the body of each function literal that a unit of work runs: what is given to Manager.Do.
func units(pass *analysis.Pass, in *inspector.Inspector, fn func(body *ast.BlockStmt)) {
	in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || !isMethod(pass.TypesInfo, call, uowPath, "Manager", "Do") {
			return
		}
		for _, arg := range call.Args {
			if literal, ok := ast.Unparen(arg).(*ast.FuncLit); ok {
				fn(literal.Body)
			}
		}
	})
}

// isMethod tells whether a call is one of a method of a named type.
func isMethod(info *types.Info, call *ast.CallExpr, path, typ, name string) bool {
	called, ok := typeutil.Callee(info, call).(*types.Func)
	if !ok || called.Name() != name {
		return false
	}
	receiver := called.Signature().Recv()
	return receiver != nil && isNamed(receiver.Type(), path, typ)
}

// isNamed tells whether t is a named type, or a pointer to it.
func isNamed(t types.Type, path, name string) bool {
	if pointer, ok := types.Unalias(t).(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path
}
