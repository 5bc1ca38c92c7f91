"""Routes that ask about rows: predictions, evidence, sets, decisions, what-if."""

from __future__ import annotations

from fastapi import APIRouter, Response

from attnknn.errors import InvalidInputError
from attnknn.serving import answers
from attnknn.serving.predictions import predict, predictions_as_json
from attnknn.serving.routes.shared import TheService, images_of, rows_of
from attnknn.serving.schemas import (
    Ask,
    AskAnswer,
    AskAnswers,
    Decide,
    DecisionsAnswer,
    Explain,
    Explanations,
    Position,
    Predict,
    Predictions,
    Sets,
    SetsAnswer,
    WhatIfAnswer,
    WhatIfBody,
)

router = APIRouter(tags=["questions"])


@router.post("/api/predict", response_model=Predictions)
async def predict_rows(question: Predict, service: TheService) -> Response:
    """Labels and probabilities of rows.

    Questions of few rows that clients ask at the same time are answered together.
    """

    def answer() -> bytes:
        state = service.state
        found = predict(state, rows_of(service, state, question))
        return predictions_as_json(state, found, question.probabilities)

    return Response(await service.ask(answer), media_type="application/json")


@router.post("/api/explain")
async def explain(question: Explain, service: TheService) -> Explanations:
    """The evidence of predictions: the entries that voted, with their weights."""

    def answer() -> Explanations:
        state = service.state
        X = rows_of(service, state, question)
        if len(X) > answers.MAX_EXPLAINED:
            raise InvalidInputError(f"Ask about at most {answers.MAX_EXPLAINED:,} rows at once.")
        writer = answers.EvidenceWriter(state, images_of(service), question.n_neighbors)
        return Explanations(
            version=state.version,
            classes=state.classifier.classes_.tolist(),
            evidence=[writer.write(one) for one in state.classifier.explain(X)],
        )

    return await service.ask(answer)


@router.post("/api/sets")
async def sets(question: Sets, service: TheService) -> SetsAnswer:
    """Sets of classes that hold the true one with a stated probability."""

    def answer() -> SetsAnswer:
        state = service.state
        found = state.classifier.predict_set(
            rows_of(service, state, question), question.coverage, allow_empty=question.allow_empty
        )
        return SetsAnswer(version=state.version, coverage=question.coverage, sets=found.labels())

    return await service.ask(answer)


@router.post("/api/decide")
async def decide(question: Decide, service: TheService) -> DecisionsAnswer:
    """Labels, or reasons to abstain."""

    def answer() -> DecisionsAnswer:
        state = service.state
        decisions, least = answers.decide(state, rows_of(service, state, question), question)
        return DecisionsAnswer(version=state.version, min_confidence=least, decisions=decisions)

    return await service.ask(answer)


@router.post("/api/ask")
async def ask(question: Ask, service: TheService) -> AskAnswers:
    """Evidence, prediction set and decision of a few rows, from one state."""

    def answer() -> AskAnswers:
        state = service.state
        classifier = state.classifier
        X = rows_of(service, state, question)
        if len(X) > answers.MAX_ASKED:
            raise InvalidInputError(f"Ask about at most {answers.MAX_ASKED} rows at once.")
        writer = answers.EvidenceWriter(state, images_of(service), question.n_neighbors)
        found = classifier.predict_set(X, question.coverage, allow_empty=question.allow_empty)
        decisions, _ = answers.decide(state, X, question)
        placed = service.map.place(state, X)
        positions = [None] * len(X) if placed is None else [Position(x=x, y=y) for x, y in placed]
        parts = zip(classifier.explain(X), found.labels(), decisions, positions, strict=True)
        return AskAnswers(
            version=state.version,
            classes=classifier.classes_.tolist(),
            answers=[
                AskAnswer(
                    evidence=writer.write(evidence),
                    set=members,
                    decision=decision,
                    position=position,
                )
                for evidence, members, decision, position in parts
            ],
        )

    return await service.ask(answer)


@router.post("/api/what-if")
async def what_if(question: WhatIfBody, service: TheService) -> WhatIfAnswer:
    """How predictions would change by an edit. The edit is not made."""

    def answer() -> WhatIfAnswer:
        state = service.state
        return answers.try_edit(state, rows_of(service, state, question), question)

    return await service.ask(answer)
